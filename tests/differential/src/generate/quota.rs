//! Draws requests for a quota on one subtree, each in a step of its own.
//!
//! ZooKeeper checks a request by the usage before all pending ones. So pipelined requests, and
//! several operations of one multi, may pass a limit there that zoolet enforces.
//!
//! Not sent: data for `zookeeper_stats`, unparsable limits, and limits without a usage for long.
//! ZooKeeper stops, or answers by a usage that it does not keep.

use super::Generator;
use super::value::open_acl;
use crate::script::{Action, Op};
use crate::value::Value;

const SUBTREE: &str = "/quoted";
const QUOTA: &str = "/zookeeper/quota/quoted";
const LIMITS: &str = "/zookeeper/quota/quoted/zookeeper_limits";
const STATS: &str = "/zookeeper/quota/quoted/zookeeper_stats";

const TEXTS: [&str; 9] = [
    "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=6",
    "count=-1,bytes=-1=;byteHardLimit=40;countHardLimit=-1",
    "count=3,bytes=9=;byteHardLimit=-1;countHardLimit=-1",
    "countHardLimit=4;;byteHardLimit=30,other=3",
    "count=2,countHardLimit=12",
    "byteHardLimit=0",
    "countHardLimit==3,bytes=5",
    "countHardLimit=+9",
    "",
];

impl Generator {
    /// Sets the quota as zkCli does.
    pub(super) fn begin_quota(&mut self) {
        self.quota_ops(0, [plain(SUBTREE, "root"), plain(QUOTA, "")]);
        self.quota_ops(0, [plain(LIMITS, TEXTS[0]), plain(STATS, "count=0,bytes=0")]);
    }

    fn quota_ops(&mut self, session: usize, ops: impl IntoIterator<Item = Op>) {
        for op in ops {
            self.push(session, Action::Send { pieces: 1, ops: vec![op] });
        }
    }

    pub(super) fn quota_step(&mut self, session: usize) {
        let text = *self.random.of(&TEXTS);
        match self.random.below(24) {
            0..8 => {
                let op = self.quota_create();
                self.quota_ops(session, [op]);
            }
            8..12 => {
                let op = Op::new("delete", vec![Value::text(self.quota_path()), Value::Int(-1)]);
                self.quota_ops(session, [op]);
            }
            12..16 => {
                let version = Value::Int(*self.random.of(&[-1, -1, 0, 1, 9]));
                let op = Op::new("setData", vec![Value::text(self.quota_path()), self.quota_data(), version]);
                self.quota_ops(session, [op]);
            }
            16..18 => self
                .quota_ops(session, [Op::new("setData", vec![Value::text(LIMITS), Value::text(text), Value::Int(-1)])]),
            18 => {
                let delete = |path| Op::new("delete", vec![Value::text(path), Value::Int(-1)]);
                self.quota_ops(session, [delete(LIMITS), delete(STATS), plain(LIMITS, text), plain(STATS, "")]);
            }
            19 => self.quota_ops(session, [Op::new("exists", vec![Value::text(STATS), Value::Byte(1)])]),
            20 => self.quota_ops(session, [Op::new("getChildren2", vec![Value::text(QUOTA), Value::Byte(0)])]),
            _ => self.quota_ops(session, [Op::new("getData", vec![Value::text(STATS), Value::Byte(1)])]),
        }
    }

    fn quota_create(&mut self) -> Op {
        let flags = Value::Int(*self.random.of(&[0, 0, 0, 1, 1, 2]));
        let name = *self.random.of(&["create", "create2"]);
        Op::new(name, vec![Value::text(self.quota_path()), self.quota_data(), open_acl(), flags])
    }

    fn quota_path(&mut self) -> String {
        let name = *self.random.of(&["", "/a", "/b", "/a/x", "/a/y", "/b/x", "/c", "2"]);
        format!("{SUBTREE}{name}")
    }

    fn quota_data(&mut self) -> Value {
        match self.random.below(14) {
            0 => Value::Bytes(None),
            length => Value::Bytes(Some(vec![b'q'; length - 1])),
        }
    }
}

fn plain(path: &str, data: &str) -> Op {
    Op::new("create", vec![Value::text(path), Value::text(data), open_acl(), Value::Int(0)])
}
