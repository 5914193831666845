//! Events as lines on standard output, for people and pipes.
//!
//! At least once, with a stable `id` to drop repeats: a pipe cannot say what was read from it, so a batch
//! whose outcome is not known is sent again. Each batch is flushed; nothing stays behind in a buffer.

use std::io::{self, ErrorKind, Write};

use crate::batch::Batch;
use crate::config::Header;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;
use crate::sink::lines::Lines;
use crate::sink::{Committed, Receipt, Sink, SinkError};

/// Bytes gathered before a write: one write for many events, without holding the whole batch twice.
const WRITE_BYTES: usize = 64 * 1024;

/// Writes to standard output, or to whatever stands in for it.
#[derive(Debug)]
pub struct StdoutSink<W> {
    out: W,
    lines: Lines,
    buffer: Vec<u8>,
}

impl<W: Write + Send> StdoutSink<W> {
    #[must_use]
    pub fn new(out: W, headers: &[Header]) -> Self {
        Self { out, lines: Lines::new(headers), buffer: Vec::new() }
    }

    fn write(&mut self, batch: &Batch) -> io::Result<()> {
        self.buffer.clear();
        for event in batch.events() {
            self.lines.write_with_topic(&event, &mut self.buffer);
            if self.buffer.len() >= WRITE_BYTES {
                self.out.write_all(&self.buffer)?;
                self.buffer.clear();
            }
        }
        self.out.write_all(&self.buffer)?;
        self.out.flush()
    }
}

impl<W: Write + Send + Sync> Sink for StdoutSink<W> {
    fn open(&mut self) -> Result<Committed, SinkError> {
        Ok(Committed::CannotSay)
    }

    fn deliver(&mut self, batch: &Batch, progress: &Progress, _tables: &[TableJournal]) -> Result<Receipt, SinkError> {
        match self.write(batch) {
            Ok(()) => Ok(Receipt { batch: progress.batch.clone() }),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(SinkError::Closed),
            Err(source) => Err(SinkError::Io { doing: "write to", path: "standard output".to_owned(), source }),
        }
    }

    fn event_bytes_max(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::sink::example::{batch, progress};

    #[test]
    fn a_delivered_batch_is_in_the_pipe_before_the_receipt() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut sink = StdoutSink::new(io::BufWriter::new(writer), &[Header::Id]);
        assert_eq!(sink.open().unwrap(), Committed::CannotSay);
        let progress = progress(1);
        let receipt = sink.deliver(&batch(&[("shop.public.a", 1), ("shop.public.b", 2)]), &progress, &[]).unwrap();
        assert_eq!(*receipt.batch(), progress.batch);

        let mut seen = vec![0; 4096];
        let length = reader.read(&mut seen).unwrap();
        assert_eq!(
            String::from_utf8(seen[..length].to_vec()).unwrap(),
            "{\"topic\":\"shop.public.a\",\"key\":1,\"value\":{\"n\":1},\"headers\":{\"id\":\"id-1\"}}\n\
             {\"topic\":\"shop.public.b\",\"key\":2,\"value\":{\"n\":2},\"headers\":{\"id\":\"id-2\"}}\n"
        );
    }

    #[test]
    fn a_reader_that_left_is_told_apart_from_a_fault() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut sink = StdoutSink::new(writer, &[]);
        let delivered = sink.deliver(&batch(&[("shop.public.a", 1)]), &progress(1), &[]);
        assert!(matches!(delivered, Err(SinkError::Closed)), "{delivered:?}");
    }
}
