//! Translates paths between a session with a root and its server.

use zoolet_model::{Create, Reply, Request, Text, WriteOp};

/// The znode that is `/` for a session.
#[derive(Clone, Default, Debug)]
pub(super) struct Root(pub(super) String);

impl Root {
    /// Returns the server's path of a znode.
    pub(super) fn outer(&self, path: &Text) -> Text {
        if self.0.is_empty() {
            return path.clone();
        }
        if path == "/" { self.0.as_str().into() } else { format!("{}{path}", self.0).into() }
    }

    /// Returns the session's path of a znode; the server's own path outside of the root.
    pub(super) fn inner(&self, path: &str) -> String {
        match path.strip_prefix(&self.0) {
            Some("") => "/".to_owned(),
            Some(rest) if rest.starts_with('/') => rest.to_owned(),
            _ => path.to_owned(),
        }
    }

    /// Translates the paths of a request.
    pub(super) fn request(&self, mut request: Request) -> Request {
        if self.0.is_empty() {
            return request;
        }
        match &mut request {
            Request::Write(operation) => self.operation(operation),
            Request::Multi(operations) => operations.iter_mut().for_each(|operation| self.operation(operation)),
            Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::GetChildren { path, .. }
            | Request::GetAcl { path }
            | Request::GetAllChildrenNumber { path }
            | Request::GetTtl { path }
            | Request::AddWatch { path, .. }
            | Request::CheckWatches { path, .. }
            | Request::RemoveWatches { path, .. } => *path = self.outer(path),
            Request::GetEphemerals { prefix: path } | Request::Sync { path } => {
                *path = Some(self.outer(path.as_ref().unwrap_or(&"/".into())));
            }
            // The shell sends no multiRead; the others have no paths, or those of the server.
            Request::MultiRead(_)
            | Request::Ping
            | Request::Auth { .. }
            | Request::Sasl
            | Request::WhoAmI
            | Request::SetWatches(_)
            | Request::Reconfig
            | Request::CloseSession
            | Request::Malformed { .. }
            | Request::Unknown => {}
        }
        request
    }

    fn operation(&self, operation: &mut WriteOp) {
        match operation {
            WriteOp::Create(Create { path, .. })
            | WriteOp::Delete { path, .. }
            | WriteOp::SetData { path, .. }
            | WriteOp::SetAcl { path, .. }
            | WriteOp::Check { path, .. } => *path = self.outer(path),
        }
    }

    /// Translates the paths of a reply to `request`.
    pub(super) fn reply(&self, is_list_of_paths: bool, reply: Reply) -> Reply {
        if self.0.is_empty() {
            return reply;
        }
        match reply {
            Reply::Path(path) => Reply::Path(self.inner(&path).into()),
            Reply::PathStat(path, stat) => Reply::PathStat(self.inner(&path).into(), stat),
            Reply::Names(paths) if is_list_of_paths => {
                Reply::Names(paths.iter().map(|path| self.inner(path)).collect())
            }
            other => other,
        }
    }
}

/// Returns the path of a request; `None` if it has none, or several.
pub(super) fn path_of(request: &Request) -> Option<&Text> {
    match request {
        Request::Write(
            WriteOp::Create(Create { path, .. })
            | WriteOp::Delete { path, .. }
            | WriteOp::SetData { path, .. }
            | WriteOp::SetAcl { path, .. }
            | WriteOp::Check { path, .. },
        )
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetAcl { path }
        | Request::GetAllChildrenNumber { path }
        | Request::GetTtl { path }
        | Request::AddWatch { path, .. }
        | Request::CheckWatches { path, .. }
        | Request::RemoveWatches { path, .. } => Some(path),
        Request::GetEphemerals { prefix: path } | Request::Sync { path } => path.as_ref(),
        Request::Multi(_)
        | Request::MultiRead(_)
        | Request::Ping
        | Request::Auth { .. }
        | Request::Sasl
        | Request::WhoAmI
        | Request::SetWatches(_)
        | Request::Reconfig
        | Request::CloseSession
        | Request::Malformed { .. }
        | Request::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_translated_both_ways() {
        let root = Root("/app".to_owned());
        assert_eq!(root.outer(&"/".into()), "/app");
        assert_eq!(root.outer(&"/x".into()), "/app/x");
        assert_eq!((root.inner("/app").as_str(), root.inner("/app/x").as_str()), ("/", "/x"));
        assert_eq!(root.inner("/apple"), "/apple");
        let none = Root::default();
        assert_eq!((none.outer(&"/x".into()).as_str(), none.inner("/x").as_str()), ("/x", "/x"));
        let asked = root.request(Request::GetEphemerals { prefix: None });
        assert_eq!(asked, Request::GetEphemerals { prefix: Some("/app".into()) });
        let names = Reply::Names(["/app/e"].into_iter().collect());
        assert_eq!(root.reply(true, names.clone()), Reply::Names(["/e"].into_iter().collect()));
        assert_eq!(root.reply(false, names.clone()), names);
    }
}
