//! Translates paths between a session with a root and its server.

use zoolet_model::{Reply, Request, Text};

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
            Request::Multi(operations) => {
                operations.iter_mut().for_each(|operation| self.translate(operation.path_mut()));
            }
            Request::GetEphemerals { prefix: path @ None } | Request::Sync { path: path @ None } => {
                *path = Some(self.outer(&"/".into()));
            }
            // The shell sends no multiRead.
            other => {
                if let Some(path) = other.path_mut() {
                    self.translate(path);
                }
            }
        }
        request
    }

    fn translate(&self, path: &mut Text) {
        *path = self.outer(path);
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
