//! Events in files: segments of JSON lines in a folder per topic, and beside them a record of how much of
//! them is committed.
//!
//! ```text
//! <directory>/committed.json                          see `committed`
//! <directory>/<topic>/<first event, 20 digits>.jsonl  one line an event, see `sink::lines`
//! ```
//!
//! A batch is appended to the segments of its topics; these are synchronised; then a new `committed.json`
//! takes the place of the old one in one rename, with the new lengths and the progress record inside. That
//! rename is the commit: a reader who honours the committed lengths sees each event once, whatever is killed,
//! whenever. What lies beyond them is cut when the sink is opened.
//!
//! Refused: a folder that another process uses or that holds another stream's events, and one that lost
//! something committed. After a failed write the sink has to be opened again; after a failed synchronisation
//! even that is refused, because the kernel drops what it could not write and then reports success.

mod committed;
mod folder;
mod segment;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;

use crate::batch::{Batch, EventView};
use crate::config::Header;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;
use crate::sink::file::committed::CommittedFile;
use crate::sink::file::folder::{EventsFolder, FolderError};
use crate::sink::file::segment::TopicLog;
use crate::sink::lines::Lines;
use crate::sink::{Committed, Receipt, Sink, SinkError};

/// Segments kept open between batches, and as many again within one; beyond that they are closed and opened
/// as needed. Together well below the 1,024 descriptors that a process usually gets, of which the store takes 256.
const OPEN_SEGMENTS_MAX: usize = 128;

/// The file sink.
#[derive(Debug)]
pub struct FileSink {
    directory: PathBuf,
    /// A segment that has reached this length is finished. A length, not a bound: the last event may pass it.
    segment_bytes: u64,
    stream: String,
    lines: Lines,
    state: State,
    /// Lines on their way to a segment; kept for its memory.
    buffer: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Before [`Sink::open`], and after an error in [`Sink::deliver`]: where the files end is not known.
    Closed,
    /// Entered by [`Sink::open`]; left by any error.
    Open(Box<Open>),
    /// Entered when a synchronisation fails; never left.
    Poisoned,
}

/// The folder as committed, and the segments that the next batch goes to.
#[derive(Debug)]
struct Open {
    folder: EventsFolder,
    committed: CommittedFile,
    topics: HashMap<String, TopicLog>,
}

impl FileSink {
    /// Does nothing yet; [`Sink::open`] does.
    #[must_use]
    pub fn new(directory: PathBuf, segment_bytes: u64, stream: String, headers: &[Header]) -> Self {
        Self { directory, segment_bytes, stream, lines: Lines::new(headers), state: State::Closed, buffer: Vec::new() }
    }

    /// Passes the error on, and remembers what it means for the next call.
    fn failed(&mut self, error: FolderError) -> SinkError {
        self.state = match error {
            FolderError::Sync { .. } => State::Poisoned,
            FolderError::Io { .. } | FolderError::Refused(_) => State::Closed,
        };
        error.into()
    }

    fn poisoned(&self) -> SinkError {
        SinkError::Poisoned { path: self.directory.display().to_string() }
    }

    fn open_folder(&self) -> Result<Open, FolderError> {
        let folder = EventsFolder::lock(&self.directory)?;
        let committed = folder.recover(&self.stream)?;
        let topics = committed.segments.iter().map(|(topic, segment)| (topic.clone(), TopicLog::resume(&folder, topic, segment))).collect();
        Ok(Open { folder, committed, topics })
    }

    /// The four steps of a commit: write, synchronise, rename, synchronise the rename.
    fn commit(&mut self, open: &mut Open, batch: &Batch, progress: &Progress, tables: &[TableJournal]) -> Result<(), FolderError> {
        let mut touched = Vec::new();
        for (topic, events) in by_topic(batch) {
            let mut log = match open.topics.remove(topic) {
                Some(log) => log,
                None => TopicLog::create(&mut open.folder, topic)?,
            };
            log.append(&events, self.lines, self.segment_bytes, &mut self.buffer)?;
            if touched.len() >= OPEN_SEGMENTS_MAX {
                log.sync()?;
                log.close();
            }
            touched.push((topic.to_owned(), log));
        }
        crate::fault::point("sink.file.written");

        open.folder.sync_new_topics()?;
        for (topic, mut log) in touched {
            log.sync()?;
            open.committed.segments.insert(topic.clone(), log.segment());
            open.topics.insert(topic, log);
        }
        crate::fault::point("sink.file.synced");

        open.committed.progress = Some(progress.clone());
        open.committed.tables.extend(tables.iter().map(|table| (table.topic.clone(), table.clone())));
        open.folder.commit(&open.committed)
    }
}

impl Sink for FileSink {
    fn open(&mut self) -> Result<Committed, SinkError> {
        if matches!(self.state, State::Poisoned) {
            return Err(self.poisoned());
        }
        self.state = State::Closed; // lets go of the lock that an earlier opening holds
        let open = self.open_folder().map_err(|error| self.failed(error))?;
        let committed = open.committed.record();
        self.state = State::Open(Box::new(open));
        Ok(committed)
    }

    fn deliver(&mut self, batch: &Batch, progress: &Progress, tables: &[TableJournal]) -> Result<Receipt, SinkError> {
        assert!(progress.stream == self.stream, "a batch of stream `{}` for the events of `{}`", progress.stream, self.stream);
        let mut open = match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(open) => open,
            State::Closed => return Err(SinkError::NotOpen),
            State::Poisoned => {
                self.state = State::Poisoned;
                return Err(self.poisoned());
            }
        };
        self.commit(&mut open, batch, progress, tables).map_err(|error| self.failed(error))?;
        if open.topics.values().filter(|log| log.is_open()).count() > OPEN_SEGMENTS_MAX {
            open.topics.values_mut().for_each(TopicLog::close);
        }
        self.state = State::Open(open);
        Ok(Receipt { batch: progress.batch.clone() })
    }

    fn event_bytes_max(&self) -> Option<u64> {
        None
    }
}

/// The events of each topic, in the order of delivery.
fn by_topic(batch: &Batch) -> Vec<(&str, Vec<EventView<'_>>)> {
    let mut groups: Vec<(&str, Vec<EventView<'_>>)> = Vec::new();
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for event in batch.events() {
        let topic = event.topic.name.as_str();
        let number = *numbers.entry(topic).or_insert(groups.len());
        if number == groups.len() {
            groups.push((topic, Vec::new()));
        }
        if let Some((_, events)) = groups.get_mut(number) {
            events.push(event);
        }
    }
    groups
}
