//! One pass over what the store holds of a table, by key. Work that began anew for every change that comes
//! meanwhile would have no end in a busy table.

use crate::pipeline::emitter::Emitter;
use crate::pipeline::error::SessionError;

/// Keys read again, or swept, at one boundary.
const KEYS_AT_ONCE: usize = 500;

/// A pass under way; a session that ends takes it along, the next begins another.
pub(super) struct Pass {
    /// All batches before this one have to be in the store: the pass sees whatever was emitted before it began.
    from_batch: u64,
    /// What comes next.
    page: Page,
}

/// Keys to look at, at one boundary.
#[derive(Clone)]
pub(super) struct Page {
    /// They begin after this one.
    pub(super) after: Option<Vec<u8>>,
    /// At most so many.
    pub(super) keys: usize,
}

impl Emitter {
    /// The next page of the pass over the current table, once it may begin.
    pub(super) fn pass_goes_on(&mut self) -> Result<Option<Page>, SessionError> {
        if self.reading.current.as_ref().is_some_and(|current| current.pass.is_none()) {
            if self.has_something_to_record() {
                self.close()?;
            }
            let pass = Pass { from_batch: self.next_batch(), page: Page { after: None, keys: KEYS_AT_ONCE } };
            if let Some(current) = self.reading.current.as_mut() {
                current.pass = Some(pass);
            }
        }
        let pass = self.reading.current.as_ref().and_then(|current| current.pass.as_ref());
        let applied = |pass: &&Pass| self.index.first_in_flight().is_none_or(|number| number >= pass.from_batch);
        Ok(pass.filter(applied).map(|pass| pass.page.clone()))
    }

    pub(super) fn pass_reaches(&mut self, key: Option<&Vec<u8>>) {
        let pass = self.reading.current.as_mut().and_then(|current| current.pass.as_mut());
        if let (Some(pass), Some(key)) = (pass, key) {
            pass.page.after = Some(key.clone());
        }
    }

    /// The rows of a page were more than one chunk may hold: it comes again, as a smaller one.
    pub(super) fn pass_takes(&mut self, keys: usize) {
        if let Some(pass) = self.reading.current.as_mut().and_then(|current| current.pass.as_mut()) {
            pass.page.keys = keys.max(1);
        }
    }

    pub(super) fn end_pass(&mut self) {
        if let Some(current) = self.reading.current.as_mut() {
            current.pass = None;
        }
    }
}
