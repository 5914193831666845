//! JSON strings: nothing is escaped that need not be, so that equal text gives equal bytes.

use std::io::Write as _;

use super::binary;

/// Writes `text` as a JSON string.
pub(in crate::event) fn write(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    write_escaped(text.as_bytes(), out);
    out.push(b'"');
}

/// Writes `text` as a JSON string. Bytes that are not UTF-8, of whatever encoding they are, become `{"base64":"…"}`:
/// a replacement character would make equal what differs, keys of rows among them.
pub(super) fn write_bytes(text: &[u8], out: &mut Vec<u8>) {
    if let Ok(text) = std::str::from_utf8(text) {
        write(text, out);
    } else {
        out.extend_from_slice(b"{\"base64\":");
        binary::write_base64(text, out);
        out.push(b'}');
    }
}

fn write_escaped(mut text: &[u8], out: &mut Vec<u8>) {
    loop {
        let (plain, rest) = text.split_at_checked(plain_length(text)).unwrap_or((text, &[]));
        out.extend_from_slice(plain);
        let Some((&byte, rest)) = rest.split_first() else { return };
        match byte {
            b'"' => out.extend_from_slice(br#"\""#),
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'\r' => out.extend_from_slice(br"\r"),
            b'\t' => out.extend_from_slice(br"\t"),
            0x08 => out.extend_from_slice(br"\b"),
            0x0C => out.extend_from_slice(br"\f"),
            control => {
                let written = write!(out, "\\u{control:04x}");
                debug_assert!(written.is_ok(), "writing to memory cannot fail");
            }
        }
        text = rest;
    }
}

/// Length of the longest prefix without a byte that has to be escaped. Eight bytes at a time: most text is plain.
fn plain_length(text: &[u8]) -> usize {
    let (words, tail) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return number * 8 + special.trailing_zeros() as usize / 8;
        }
    }
    let is_special = |byte: &u8| matches!(byte, 0..0x20 | b'"' | b'\\');
    words.len() * 8 + tail.iter().position(is_special).unwrap_or(tail.len())
}

/// The high bit of each byte of `word` that has to be escaped. Bits above the lowest one that is set may be wrong, as
/// the subtractions borrow; that one never is.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let below = |word: u64, bound: u8| word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGH_BITS;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, 0x20) | equal(b'"') | equal(b'\\')
}
