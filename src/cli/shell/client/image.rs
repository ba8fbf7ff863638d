//! A session at an image: a file answers in place of a server.

use super::super::failure::{Failure, code};
use super::actor::Order;
use super::{Introduction, State, Status};
use std::path::Path as FilePath;
use tokio::sync::{mpsc, watch};
use zoolet_machine::record::key;
use zoolet_machine::record::znode::Znode;
use zoolet_model::{AclEntry, Path, Reply, Request, Stat, Text, open_acl};
use zoolet_store::image::{Image, ImageError};

/// A znode of an image.
type Entry = (Option<bytes::Bytes>, Stat);

/// An open image.
pub(in crate::cli::shell) struct ImageFile {
    file: String,
    image: Image,
    /// The first znode of the image. The znodes above it are not in the file.
    top: String,
}

impl ImageFile {
    /// Opens an image and checks all of it.
    ///
    /// # Errors
    /// The file is missing or damaged, or is no image.
    pub(in crate::cli::shell) fn open(file: &FilePath) -> Result<Self, String> {
        const REMEDY: &str = "--image takes the image file of a server with the setting last_known_good";
        if file.is_dir() {
            return Err(format!("{} is a directory; {REMEDY}", file.display()));
        }
        // It checks the whole file, and tells a missing file from a damaged one.
        zoolet::last_known_good(file).map_err(|error| format!("{error}; {REMEDY}"))?;
        let image = Image::open(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut first = Vec::new();
        let scanned = image.scan(&[key::ZNODE], Some(&[key::ZNODE + 1]), &mut |key, _| {
            first.extend_from_slice(key);
            false
        });
        scanned.map_err(|error| format!("{}: {error}", file.display()))?;
        let top = path_of(&first).unwrap_or_else(|| "/".to_owned());
        Ok(Self { file: file.display().to_string(), image, top })
    }

    pub(super) fn status(&self) -> Status {
        let introduction = Some(Introduction { role: "image".to_owned(), is_zoolet: false });
        let (server, why) = (self.file.clone(), String::new());
        Status { state: State::ConnectedReadOnly, connection: 0, server, why, introduction }
    }

    /// Answers until nothing can ask any more; keeps `_status` open meanwhile.
    pub(super) async fn run(self, mut inbox: mpsc::UnboundedReceiver<Order>, _status: watch::Sender<Status>) {
        while let Some(order) = inbox.recv().await {
            match order {
                Order::Ask { request, answer, .. } => _ = answer.send(self.answer(&request)),
                Order::Reconfigure { answer, .. } => _ = answer.send(Err(self.refusal())),
                Order::Auth { answer, .. } => _ = answer.send(Err(self.refusal())),
                Order::Introduce => {}
                Order::HasIdentity { answer } => _ = answer.send(false),
                Order::Watches { answer, .. } => _ = answer.send(Vec::new()),
                Order::Forget { answer, .. } => _ = answer.send(false),
                Order::Close { answer } => {
                    _ = answer.send(());
                    return;
                }
            }
        }
    }

    /// Answers a request as a server with this tree does.
    fn answer(&self, request: &Request) -> Result<Reply, Failure> {
        match request {
            Request::GetData { watch: true, .. }
            | Request::Exists { watch: true, .. }
            | Request::GetChildren { watch: true, .. } => {
                Err(Failure::Text(format!("{} is an image, which does not change: leave out the watch", self.file)))
            }
            Request::GetData { path, .. } => self.entry(path).map(|(data, stat)| Reply::Data(data, stat)),
            Request::Exists { path, .. } => self.entry(path).map(|(_, stat)| Reply::Stat(stat)),
            Request::GetChildren { path, with_stat, .. } => {
                let (_, stat) = self.entry(path)?;
                let names = self.children(path)?.into_iter().collect();
                Ok(if *with_stat { Reply::NamesStat(names, stat) } else { Reply::Names(names) })
            }
            Request::GetAcl { path } => {
                let (_, stat) = self.entry(path)?;
                Ok(Reply::Acl(self.acl(path)?, stat))
            }
            Request::GetAllChildrenNumber { path } => self.count(path).map(Reply::Count),
            // This session owns none.
            Request::GetEphemerals { .. } => Ok(Reply::Names(std::iter::empty::<&str>().collect())),
            Request::Sync { path } => Ok(Reply::Synced(path.clone())),
            _ => Err(self.refusal()),
        }
    }

    fn entry(&self, path: &Text) -> Result<Entry, Failure> {
        if self.is_above(path) {
            return Ok((None, Stat { num_children: 1, ..Stat::default() }));
        }
        let known = Path::new(path.clone()).ok();
        let entry = known.map_or(Ok(None), |path| self.image.znode(&path)).map_err(|error| self.broken(&error))?;
        entry.ok_or_else(|| missing(path))
    }

    fn children(&self, path: &Text) -> Result<Vec<String>, Failure> {
        if self.is_above(path) {
            let below = self.top[path.len()..].trim_start_matches('/');
            return Ok(below.split('/').take(1).map(str::to_owned).collect());
        }
        let mut names = Vec::new();
        let scanned = self.image.children(path, &mut |name| {
            names.push(name.to_owned());
            true
        });
        scanned.map(|()| names).map_err(|error| self.broken(&error))
    }

    fn acl(&self, path: &Text) -> Result<Vec<AclEntry>, Failure> {
        if self.is_above(path) {
            return Ok(open_acl());
        }
        let place = key::znode(path).ok_or_else(|| missing(path))?;
        let record = self.image.get(&place).map_err(|error| self.broken(&error))?.ok_or_else(|| missing(path))?;
        let acl = Znode::decode(&record).and_then(|znode| znode.acl_entries());
        acl.map_err(|_| Failure::Text(format!("{}: the record of {path} is damaged", self.file)))
    }

    fn count(&self, path: &Text) -> Result<i32, Failure> {
        self.entry(path)?;
        let (mut count, mut above) = (0, path.clone());
        while self.is_above(&above) {
            count += 1;
            above = if above.len() + 1 < self.top.len() { self.step(&above) } else { self.top.as_str().into() };
        }
        for prefix in [key::children_prefix(&above), key::descendants_prefix(&above)] {
            let scanned = self.image.scan(&prefix, key::end_of_prefix(&prefix).as_deref(), &mut |_, _| {
                count += 1;
                true
            });
            scanned.map_err(|error| self.broken(&error))?;
        }
        Ok(count)
    }

    /// Returns the child of a znode above the top, on the way to the top.
    fn step(&self, above: &Text) -> Text {
        let from = if above == "/" { 1 } else { above.len() + 1 };
        let end = self.top[from..].find('/').map_or(self.top.len(), |length| from + length);
        self.top[..end].into()
    }

    fn is_above(&self, path: &str) -> bool {
        path != self.top && super::super::depth_first::is_within(&self.top, path)
    }

    fn refusal(&self) -> Failure {
        Failure::Text(format!("{} is an image, which can only be read; to change znodes, use --server", self.file))
    }

    fn broken(&self, error: &ImageError) -> Failure {
        Failure::Text(format!("{}: {error}", self.file))
    }
}

fn missing(path: &str) -> Failure {
    Failure::Refused { code: code::NO_NODE, path: Some(path.to_owned()), why: String::new() }
}

/// Returns the path in the key of a znode.
fn path_of(key: &[u8]) -> Option<String> {
    let text = str::from_utf8(key.get(1..)?).ok()?;
    let (parent, name) = text.split_once('\0')?;
    Some(if parent.is_empty() { "/".to_owned() } else { super::super::znode_path::child(parent, name) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoolet_model::{WriteOp, Zxid};
    use zoolet_store::FsDisk;
    use zoolet_store::image::Subtree;

    fn image(top: &str) -> ImageFile {
        let path = |text: &str| Path::new(text).unwrap();
        let mut subtree = Subtree::default();
        subtree.add(&path(top), Some(b"top"), &Stat { version: 3, ..Stat::default() }, 2);
        subtree.add(&path(&format!("{top}/a")), Some(&[7; 5000]), &Stat::default(), 1);
        subtree.add(&path(&format!("{top}/a/deep")), None, &Stat::default(), 0);
        subtree.add(&path(&format!("{top}/b")), Some(b""), &Stat::default(), 0);
        let name = format!("zoolet-shell-{}{}", std::process::id(), top.replace('/', "-"));
        let directory = std::env::temp_dir();
        subtree.write(&FsDisk::shared(&directory).unwrap(), &name, Zxid::from_bits(9).unwrap()).unwrap();
        let opened = ImageFile::open(&directory.join(&name)).unwrap();
        std::fs::remove_file(directory.join(&name)).unwrap();
        opened
    }

    fn names(image: &ImageFile, path: &str) -> Vec<String> {
        match image.answer(&Request::GetChildren { path: path.into(), watch: false, with_stat: false }) {
            Ok(Reply::Names(names)) => names.iter().map(str::to_owned).collect(),
            _ => vec!["refused".to_owned()],
        }
    }

    #[test]
    fn image_answers_as_a_server_and_shows_the_way_to_its_top() {
        let image = image("/site/conf");
        let listed: Vec<_> = ["/", "/site", "/site/conf", "/site/conf/a", "/x"].map(|path| names(&image, path)).into();
        assert_eq!(listed, [vec!["site"], vec!["conf"], vec!["a", "b"], vec!["deep"], vec!["refused"]]);
        let data = |path: &str| image.answer(&Request::GetData { path: path.into(), watch: false });
        assert!(matches!(data("/site/conf"), Ok(Reply::Data(Some(data), stat)) if data == "top" && stat.version == 3));
        assert!(matches!(data("/site/conf/a"), Ok(Reply::Data(Some(data), _)) if data.len() == 5000));
        assert!(matches!(data("/site/conf/a/deep"), Ok(Reply::Data(None, _))));
        assert!(data("/site/conf/x").is_err_and(|failure| failure.is(code::NO_NODE)));
        assert!(matches!(data("/site"), Ok(Reply::Data(None, stat)) if stat.num_children == 1));
        let acl = image.answer(&Request::GetAcl { path: "/site/conf".into() });
        assert!(matches!(acl, Ok(Reply::Acl(entries, _)) if entries == open_acl()));
        for (path, below) in [("/", 5), ("/site", 4), ("/site/conf", 3), ("/site/conf/a", 1), ("/site/conf/b", 0)] {
            let count = image.answer(&Request::GetAllChildrenNumber { path: path.into() });
            assert!(matches!(count, Ok(Reply::Count(count)) if count == below), "{path}: {count:?}");
        }
    }

    #[test]
    fn image_refuses_writes_and_watches() {
        let image = image("/conf");
        let write = Request::Write(WriteOp::Delete { path: "/conf".into(), version: -1 });
        assert!(image.answer(&write).unwrap_err().message().contains("can only be read"));
        let watch = Request::GetData { path: "/conf".into(), watch: true };
        assert!(image.answer(&watch).unwrap_err().message().contains("leave out the watch"));
    }
}
