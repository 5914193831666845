//! The bytes of a stage: all that a batch changes, under its id, before it is known whether it counts.
//!
//! ```text
//! byte 0      version, 1
//! 4           length of the progress record
//! …           the progress record, JSON; its batch id names the stage
//! …           a RocksDB write batch, which applies everything and drops the stage
//! ```
//!
//! A stage is applied by the very bytes that were written, also by another process after a crash. They name
//! column families by RocksDB's numbers, which stay with a folder as long as it lives.

/// Written in front of every stage; another one is refused.
const VERSION: u8 = 1;

/// A write batch's own header: sequence number (8) and count (4).
const WRITE_BATCH_BYTES_MIN: usize = 12;

pub(super) fn encode(progress: &[u8], writes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(progress.len()).expect("a progress record is far below 4 GB");
    let mut bytes = Vec::with_capacity(1 + 4 + progress.len() + writes.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(progress);
    bytes.extend_from_slice(writes);
    bytes
}

/// The progress record and the write batch; the error says what is wrong.
pub(super) fn decode(bytes: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let Some((&version, rest)) = bytes.split_first() else { return Err("it is empty".to_owned()) };
    if version != VERSION {
        return Err(format!("its version is `{version}`, this program reads `{VERSION}`"));
    }
    let (length, rest) = rest.split_first_chunk().ok_or("its length is cut off")?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|error| error.to_string())?;
    let (progress, writes) = rest.split_at_checked(length).ok_or("its progress record is cut off")?;
    if writes.len() < WRITE_BATCH_BYTES_MIN {
        return Err(format!("its write batch has `{}` bytes, at least `{WRITE_BATCH_BYTES_MIN}` were expected", writes.len()));
    }
    Ok((progress, writes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_reads_as_it_was_written_and_no_part_of_it_reads_at_all() {
        let writes = [7; 12];
        let bytes = encode(b"{}", &writes);
        assert_eq!(decode(&bytes), Ok((&b"{}"[..], &writes[..])));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
        let mut later = bytes;
        later[0] = 2;
        assert_eq!(decode(&later), Err("its version is `2`, this program reads `1`".to_owned()));
    }
}
