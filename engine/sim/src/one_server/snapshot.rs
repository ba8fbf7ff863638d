//! The base of one server as its completions read it.

use super::Records;
use bytes::Bytes;
use zoolet_machine::record::key::Key;
use zoolet_machine::seam::action::BaseRead;
use zoolet_machine::seam::event::BaseFailure;

/// One generation of the base, for completions.
pub(crate) struct Snapshot<'a>(pub(crate) &'a Records);

impl BaseRead for Snapshot<'_> {
    fn record(&self, key: &[u8]) -> Result<Option<Bytes>, BaseFailure> {
        Ok(self.0.get(key).cloned())
    }

    fn keys(&self, from: &[u8], to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), BaseFailure> {
        let keys = self.0.range(Key::from(from)..).map(|(key, _)| key);
        for key in keys.take_while(|key| to.is_none_or(|to| &***key < to)) {
            if !visit(key) {
                break;
            }
        }
        Ok(())
    }
}
