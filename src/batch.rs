//! A batch under way: an arena of bytes, the events that lie in it, and how far the stream is with it.
//!
//! Events are written once, into the arena, and never moved again; a sink reads them from there.

use std::ops::Range;
use std::sync::Arc;

use crate::event::topic::Topic;

/// One event of a batch: ranges of the batch's arena, end exclusive.
#[derive(Clone, Debug)]
pub struct Event {
    pub topic: Arc<Topic>,
    /// JSON of the key; `None` for tables without a key.
    key: Option<Range<usize>>,
    /// JSON of the value; `None` for a tombstone.
    value: Option<Range<usize>>,
    /// Text of the event id.
    id: Range<usize>,
    /// Text of the event's order.
    order: Range<usize>,
}

/// One event as a sink sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventView<'a> {
    pub topic: &'a Arc<Topic>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub id: &'a [u8],
    pub order: &'a [u8],
}

/// The events of a batch in the order of delivery.
#[derive(Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    events: Vec<Event>,
}

/// Where one event's pieces lie; made while it is written.
#[derive(Clone, Debug)]
pub struct Written {
    pub key: Option<Range<usize>>,
    pub value: Option<Range<usize>>,
    pub id: Range<usize>,
    pub order: Range<usize>,
}

impl Batch {
    /// The arena, to write an event's pieces to its end.
    pub fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    /// Adds an event whose pieces were just written to the arena.
    pub fn push(&mut self, topic: Arc<Topic>, written: Written) {
        let Written { key, value, id, order } = written;
        self.events.push(Event { topic, key, value, id, order });
    }

    /// The pieces of an event that is not pushed yet are taken back: the arena ends at `length` again.
    pub fn truncate_arena(&mut self, length: usize) {
        self.arena.truncate(length);
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Bytes of all events.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// The events in the order of delivery.
    pub fn events(&self) -> impl Iterator<Item = EventView<'_>> {
        let piece = |range: &Range<usize>| self.arena.get(range.clone()).unwrap_or_default();
        self.events.iter().map(move |event| EventView {
            topic: &event.topic,
            key: event.key.as_ref().map(piece),
            value: event.value.as_ref().map(piece),
            id: piece(&event.id),
            order: piece(&event.order),
        })
    }

    /// Empties the batch, keeping its memory for the next one.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.events.clear();
    }
}
