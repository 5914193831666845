//! The events folder: locked while it is in use, brought back to what was committed when it is opened, and
//! the one place where a commit happens.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::sink::SinkError;
use crate::sink::file::committed::{CommittedFile, Segment};
use crate::sink::file::segment::segments_in;

/// The record of what is committed.
const COMMITTED: &str = "committed.json";

/// Its successor while it is written. No topic's folder can have this name: topics have no `~`.
const COMMITTED_NEW: &str = "committed.json~";

/// Why the folder could not be opened or committed to. Failed synchronisations are told apart: after one,
/// what the kernel shows of a file may not be what the disk holds.
#[derive(Debug)]
pub(super) enum FolderError {
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    Sync {
        path: PathBuf,
        source: io::Error,
    },
    /// The folder is not as it should be: locked, of another stream, damaged, incomplete.
    Refused(SinkError),
}

impl FolderError {
    /// For `map_err`: what was tried, with which file.
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }

    /// For `map_err`: this file could not be synchronised.
    pub(super) fn sync(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Sync { path: path.to_owned(), source }
    }
}

impl From<FolderError> for SinkError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { doing, path, source } => Self::Io { doing, path: path.display().to_string(), source },
            FolderError::Sync { path, source } => Self::Io { doing: "synchronise", path: path.display().to_string(), source },
            FolderError::Refused(error) => error,
        }
    }
}

/// The folder, locked until this is dropped.
#[derive(Debug)]
pub(super) struct EventsFolder {
    path: PathBuf,
    /// The folder itself: holds the lock, and synchronises names.
    handle: File,
    /// A topic's folder was made since the names were last synchronised.
    new_topics: bool,
}

/// A process that was being started meanwhile has a copy of the handle: the lock does not wait for it.
impl Drop for EventsFolder {
    fn drop(&mut self) {
        let _released = self.handle.unlock().is_ok();
    }
}

impl EventsFolder {
    /// Makes the folder if it is missing, and locks it against other processes.
    pub(super) fn lock(path: &Path) -> Result<Self, FolderError> {
        fs::create_dir_all(path).map_err(FolderError::io("create the events folder", path))?;
        let handle = File::open(path).map_err(FolderError::io("open the events folder", path))?;
        match handle.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), handle, new_topics: false }),
            Err(TryLockError::WouldBlock) => Err(FolderError::Refused(SinkError::Locked { path: path.display().to_string() })),
            Err(TryLockError::Error(source)) => Err(FolderError::io("lock the events folder", path)(source)),
        }
    }

    /// Reads what is committed and cuts what lies beyond. Nothing is cut unless all that is committed is there.
    pub(super) fn recover(&self, stream: &str) -> Result<CommittedFile, FolderError> {
        let path = self.path.join(COMMITTED);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return self.begin(stream),
            Err(source) => return Err(FolderError::io("read", &path)(source)),
        };
        let damaged = |why| FolderError::Refused(SinkError::Damaged { path: path.display().to_string(), why });
        let committed = CommittedFile::parse(&bytes).map_err(damaged)?;
        if committed.stream != stream {
            let path = self.path.display().to_string();
            return Err(FolderError::Refused(SinkError::OtherStream { path, found: committed.stream, expected: stream.to_owned() }));
        }
        // A process may have been killed between the rename and its synchronisation: what is read here must
        // not be told to anyone before it is sure to stay.
        self.sync_names()?;
        for (topic, segment) in &committed.segments {
            check_segment(&self.topic_path(topic).join(&segment.file), segment)?;
        }
        self.cut(&committed)?;
        Ok(committed)
    }

    /// The first opening of the folder. Refused where there are segments: their record was lost.
    fn begin(&self, stream: &str) -> Result<CommittedFile, FolderError> {
        for topic in self.topics()? {
            if !segments_in(&self.topic_path(&topic))?.is_empty() {
                let path = self.path.join(COMMITTED).display().to_string();
                let why = format!("it is missing, but topic `{topic}` has segments");
                return Err(FolderError::Refused(SinkError::Damaged { path, why }));
            }
        }
        let committed = CommittedFile::empty(stream);
        self.commit(&committed)?;
        Ok(committed)
    }

    /// Removes what is not committed.
    fn cut(&self, committed: &CommittedFile) -> Result<(), FolderError> {
        for topic in self.topics()? {
            let last = committed.segments.get(&topic);
            for name in segments_in(&self.topic_path(&topic))? {
                let path = self.topic_path(&topic).join(&name);
                match last {
                    Some(last) if name < last.file => {}
                    Some(last) if name == last.file => cut_file(&path, last.length)?,
                    _ => fs::remove_file(&path).map_err(FolderError::io("remove", &path))?,
                }
            }
        }
        Ok(())
    }

    /// Puts `committed` in the place of the present record: whoever reads it sees the one or the other.
    pub(super) fn commit(&self, committed: &CommittedFile) -> Result<(), FolderError> {
        let (path, new) = (self.path.join(COMMITTED), self.path.join(COMMITTED_NEW));
        let bytes = committed.to_bytes().map_err(|error| FolderError::io("write", &new)(error.into()))?;
        let mut file = File::create(&new).map_err(FolderError::io("create", &new))?;
        file.write_all(&bytes).map_err(FolderError::io("write to", &new))?;
        file.sync_data().map_err(FolderError::sync(&new))?;
        fs::rename(&new, &path).map_err(FolderError::io("rename", &new))?;
        crate::fault::point("sink.file.renamed");
        self.sync_names()
    }

    /// Makes the folder of a topic.
    pub(super) fn create_topic(&mut self, topic: &str) -> Result<PathBuf, FolderError> {
        let path = self.topic_path(topic);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(FolderError::io("create", &path)(error)),
            _ => self.new_topics = true,
        }
        Ok(path)
    }

    /// The folders made since the last commit are sure to stay, before a record names them.
    pub(super) fn sync_new_topics(&mut self) -> Result<(), FolderError> {
        if std::mem::take(&mut self.new_topics) { self.sync_names() } else { Ok(()) }
    }

    pub(super) fn topic_path(&self, topic: &str) -> PathBuf {
        assert!(names_a_folder(topic), "topic `{topic}` names a folder");
        self.path.join(topic)
    }

    fn sync_names(&self) -> Result<(), FolderError> {
        self.handle.sync_all().map_err(FolderError::sync(&self.path))
    }

    /// Names of the folders inside that may be topics.
    fn topics(&self) -> Result<Vec<String>, FolderError> {
        let mut topics = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(FolderError::io("list", &self.path))? {
            let entry = entry.map_err(FolderError::io("list", &self.path))?;
            let is_folder = entry.file_type().map_err(FolderError::io("look at", &entry.path()))?.is_dir();
            if let Ok(name) = entry.file_name().into_string()
                && is_folder
                && names_a_folder(&name)
            {
                topics.push(name);
            }
        }
        Ok(topics)
    }
}

/// Whether a topic of this name can have a folder.
pub(super) fn names_a_folder(topic: &str) -> bool {
    !topic.is_empty() && !topic.starts_with('.') && topic.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The committed part of a segment is there, and ends with a line.
fn check_segment(path: &Path, Segment { length: committed, .. }: &Segment) -> Result<(), FolderError> {
    let lost = |length| FolderError::Refused(SinkError::LostData { path: path.display().to_string(), length, committed: *committed });
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(lost(0)),
        Err(source) => return Err(FolderError::io("open", path)(source)),
    };
    let length = file.metadata().map_err(FolderError::io("look at", path))?.len();
    if length < *committed {
        return Err(lost(length));
    }
    let mut end = [0];
    file.read_exact_at(&mut end, committed.saturating_sub(1)).map_err(FolderError::io("read", path))?;
    if end != *b"\n" {
        let why = format!("its committed part, `{committed}` bytes, does not end with a line");
        return Err(FolderError::Refused(SinkError::Damaged { path: path.display().to_string(), why }));
    }
    Ok(())
}

fn cut_file(path: &Path, length: u64) -> Result<(), FolderError> {
    let file = File::options().write(true).open(path).map_err(FolderError::io("open", path))?;
    if file.metadata().map_err(FolderError::io("look at", path))?.len() > length {
        file.set_len(length).map_err(FolderError::io("cut", path))?;
    }
    Ok(())
}
