//! The segments of one topic: appended to, finished when they are long enough, synchronised before a commit.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::batch::EventView;
use crate::sink::file::committed::Segment;
use crate::sink::file::folder::{EventsFolder, FolderError};
use crate::sink::lines::Lines;

/// Bytes gathered before a write: few system calls, and a bound on what is held twice.
const WRITE_BYTES: usize = 1024 * 1024;

/// Digits of a segment's name: the number of its first event, so that names sort as numbers.
const NAME_DIGITS: usize = 20;

const NAME_SUFFIX: &str = ".jsonl";

/// The end of one topic.
#[derive(Debug)]
pub(super) struct TopicLog {
    folder: PathBuf,
    /// The segment that events go to; written up to `length`, synchronised or not.
    segment: Segment,
    /// `None`: it is opened when it is needed.
    file: Option<File>,
    /// The segment has bytes that are not synchronised.
    unsynced: bool,
    /// A segment was made whose name is not synchronised.
    unsynced_name: bool,
}

impl TopicLog {
    /// A topic's first segment. A file of that name can only be what was never committed; it is gone by now.
    pub(super) fn create(folder: &mut EventsFolder, topic: &str) -> Result<Self, FolderError> {
        let folder = folder.create_topic(topic)?;
        let segment = Segment { file: segment_name(0), length: 0, next: 0 };
        let mut log = Self { folder, segment, file: None, unsynced: false, unsynced_name: false };
        log.start_segment()?;
        Ok(log)
    }

    /// Goes on where the topic is committed.
    pub(super) fn resume(folder: &EventsFolder, topic: &str, segment: &Segment) -> Self {
        Self { folder: folder.topic_path(topic), segment: segment.clone(), file: None, unsynced: false, unsynced_name: false }
    }

    /// Where the topic ends, for the record: synchronised as far as that.
    pub(super) fn segment(&self) -> Segment {
        assert!(!self.unsynced && !self.unsynced_name, "only what is synchronised is committed");
        self.segment.clone()
    }

    /// Appends `events`; `buffer` is for its memory only.
    pub(super) fn append(
        &mut self,
        events: &[EventView<'_>],
        lines: Lines,
        segment_bytes: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), FolderError> {
        buffer.clear();
        for event in events {
            let length = self.segment.length + buffer.len() as u64;
            if length > 0 && length >= segment_bytes {
                self.write(buffer)?;
                self.sync()?;
                self.start_segment()?;
            }
            lines.write(event, buffer);
            self.segment.next += 1;
            if buffer.len() >= WRITE_BYTES {
                self.write(buffer)?;
            }
        }
        self.write(buffer)
    }

    /// What was written is on the disk, its name too.
    pub(super) fn sync(&mut self) -> Result<(), FolderError> {
        if self.unsynced {
            self.open()?.sync_data().map_err(FolderError::sync(&self.path()))?;
            self.unsynced = false;
        }
        if self.unsynced_name {
            let folder = File::open(&self.folder).map_err(FolderError::io("open", &self.folder))?;
            folder.sync_all().map_err(FolderError::sync(&self.folder))?;
            self.unsynced_name = false;
        }
        Ok(())
    }

    pub(super) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Gives the descriptor back.
    pub(super) fn close(&mut self) {
        assert!(!self.unsynced, "bytes are synchronised through the descriptor that wrote them");
        self.file = None;
    }

    fn write(&mut self, buffer: &mut Vec<u8>) -> Result<(), FolderError> {
        if !buffer.is_empty() {
            let length = self.segment.length;
            self.open()?.write_all_at(buffer, length).map_err(FolderError::io("write to", &self.path()))?;
            self.segment.length += buffer.len() as u64;
            self.unsynced = true;
            buffer.clear();
        }
        Ok(())
    }

    /// The next event begins a new segment.
    fn start_segment(&mut self) -> Result<(), FolderError> {
        self.segment = Segment { file: segment_name(self.segment.next), length: 0, next: self.segment.next };
        let path = self.path();
        let file = File::options().write(true).create_new(true).open(&path).map_err(FolderError::io("create", &path))?;
        self.file = Some(file);
        self.unsynced_name = true;
        Ok(())
    }

    fn open(&mut self) -> Result<&File, FolderError> {
        let path = self.path();
        match &mut self.file {
            Some(file) => Ok(file),
            closed => Ok(closed.insert(File::options().write(true).open(&path).map_err(FolderError::io("open", &path))?)),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.segment.file)
    }
}

fn segment_name(first: u64) -> String {
    format!("{first:0NAME_DIGITS$}{NAME_SUFFIX}")
}

pub(super) fn names_a_segment(name: &str) -> bool {
    name.strip_suffix(NAME_SUFFIX).is_some_and(|first| first.len() == NAME_DIGITS && first.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Names of the segments in a topic's folder. Other files are left alone.
pub(super) fn segments_in(folder: &Path) -> Result<Vec<String>, FolderError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(FolderError::io("list", folder))? {
        let entry = entry.map_err(FolderError::io("list", folder))?;
        if let Ok(name) = entry.file_name().into_string()
            && names_a_segment(&name)
        {
            names.push(name);
        }
    }
    Ok(names)
}
