//! `committed.json`: how much of the events folder is committed, and the records that were committed with it.
//!
//! ```text
//! {"version":1,"stream":"shop",
//!  "segments":{"<topic>":{"file":"<name>","length":<bytes>,"next":<events of the topic so far>},…},
//!  "progress":{…} | null,
//!  "tables":{"<topic>":{…},…}}
//! ```
//!
//! Of each topic the last committed segment stands here, with its committed length; earlier segments are
//! whole. `progress` is null from the day the folder is first opened until the first batch: so a folder that
//! has segments but no such file has lost it. Readers may rely on `segments`; the rest is walgate's.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::progress::{PROGRESS_VERSION, Progress};
use crate::rebuild::journal::TableJournal;
use crate::sink::file::folder::names_a_folder;
use crate::sink::file::segment::names_a_segment;
use crate::sink::{Committed, Record};

/// The version of the file that this program writes. It reads this one and refuses others.
const COMMITTED_VERSION: u32 = 1;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommittedFile {
    version: u32,
    pub(super) stream: String,
    /// By topic.
    pub(super) segments: BTreeMap<String, Segment>,
    pub(super) progress: Option<Progress>,
    /// By topic: the latest record of each.
    pub(super) tables: BTreeMap<String, TableJournal>,
}

/// Where a topic ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    /// Name of the last committed segment.
    pub(super) file: String,
    /// Bytes of it that are committed.
    pub(super) length: u64,
    /// Events of the topic that are committed, so the number of the next one.
    pub(super) next: u64,
}

impl Segment {
    fn is_sound(&self, topic: &str) -> bool {
        names_a_folder(topic) && names_a_segment(&self.file) && self.length > 0
    }
}

impl CommittedFile {
    /// Of a folder that holds nothing yet.
    pub(super) fn empty(stream: &str) -> Self {
        Self { version: COMMITTED_VERSION, stream: stream.to_owned(), segments: BTreeMap::new(), progress: None, tables: BTreeMap::new() }
    }

    /// Reads the file's bytes; the error says why they cannot be understood.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        /// What every version has, read before the rest is looked at.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if version != COMMITTED_VERSION {
            return Err(format!("its version is `{version}`, this program reads `{COMMITTED_VERSION}`"));
        }
        let file: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if let Some((topic, segment)) = file.segments.iter().find(|(topic, segment)| !segment.is_sound(topic)) {
            return Err(format!("topic `{topic}` cannot end at `{segment:?}`"));
        }
        match &file.progress {
            Some(progress) if progress.version != PROGRESS_VERSION => {
                Err(format!("its progress record has version `{}`, this program reads `{PROGRESS_VERSION}`", progress.version))
            }
            _ => Ok(file),
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// What the sink says of itself.
    pub(super) fn record(&self) -> Committed {
        match &self.progress {
            None => Committed::Nothing,
            Some(progress) => Committed::Record(Box::new(Record {
                progress: progress.clone(),
                tables: self.tables.values().cloned().collect(),
                lost: Vec::new(),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_version_is_refused_and_not_guessed() {
        let mut file = CommittedFile::empty("shop");
        file.progress = Some(crate::sink::example::progress(4));
        assert_eq!(CommittedFile::parse(&file.to_bytes().unwrap()), Ok(file.clone()));

        let text = String::from_utf8(file.to_bytes().unwrap()).unwrap();
        let check = |text: &str, expect: &str| assert_eq!(CommittedFile::parse(text.as_bytes()), Err(expect.to_owned()));
        check(r#"{"version":2,"segments":7}"#, "its version is `2`, this program reads `1`");
        let later = text.replace(r#""progress":{"version":1"#, r#""progress":{"version":9"#);
        check(&later, "its progress record has version `9`, this program reads `1`");
        check(r#"{"version":1,"#, "EOF while parsing a value at line 1 column 13");
    }
}
