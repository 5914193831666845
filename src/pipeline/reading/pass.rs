//! One pass over what the store holds of a table, by key. Work that began anew for every change that comes
//! meanwhile would have no end in a busy table.

use crate::pipeline::emitter::Emitter;
use crate::pipeline::error::SessionError;

/// A pass under way; a session that ends takes it along, the next begins another.
pub(super) struct Pass {
    /// All batches before this one have to be in the store: the pass sees whatever was emitted before it began.
    from_batch: u64,
    /// The last key looked at.
    after: Option<Vec<u8>>,
}

impl Emitter {
    /// The key after which the pass over the current table goes on, once it may begin; `None` before.
    #[expect(clippy::option_option, reason = "a pass that may begin has no key to go on after")]
    pub(super) fn pass_goes_on(&mut self) -> Result<Option<Option<Vec<u8>>>, SessionError> {
        if self.reading.current.as_ref().is_some_and(|current| current.pass.is_none()) {
            if self.has_something_to_record() {
                self.close()?;
            }
            let pass = Pass { from_batch: self.next_batch(), after: None };
            if let Some(current) = self.reading.current.as_mut() {
                current.pass = Some(pass);
            }
        }
        let pass = self.reading.current.as_ref().and_then(|current| current.pass.as_ref());
        let applied = |pass: &&Pass| self.index.first_in_flight().is_none_or(|number| number >= pass.from_batch);
        Ok(pass.filter(applied).map(|pass| pass.after.clone()))
    }

    pub(super) fn pass_reaches(&mut self, key: Option<&Vec<u8>>) {
        let pass = self.reading.current.as_mut().and_then(|current| current.pass.as_mut());
        if let (Some(pass), Some(key)) = (pass, key) {
            pass.after = Some(key.clone());
        }
    }

    pub(super) fn end_pass(&mut self) {
        if let Some(current) = self.reading.current.as_mut() {
            current.pass = None;
        }
    }
}
