//! Bytes: from the server's hexadecimal text to base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Bytes turned at a time, on the stack. A multiple of three, so that base64 needs padding at the end only.
const GROUP_BYTES: usize = 384;

/// Writes `bytes` as a JSON string of base64 with padding.
pub(in crate::event) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    push_base64(bytes, out);
    out.push(b'"');
}

/// Writes what `\x` and pairs of hexadecimal digits stand for as a JSON string of base64; `None` where `text` is
/// something else.
pub(super) fn write_hex_as_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (pairs, []) = text.strip_prefix(b"\\x")?.as_chunks::<2>() else { return None };
    out.push(b'"');
    for group in pairs.chunks(GROUP_BYTES) {
        let mut bytes = [0; GROUP_BYTES];
        for (byte, [high, low]) in bytes.iter_mut().zip(group) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        push_base64(bytes.get(..group.len())?, out);
    }
    out.push(b'"');
    Some(())
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    let written = out.get_mut(start..).map(|room| STANDARD.encode_slice(bytes, room));
    debug_assert!(matches!(written, Some(Ok(_))), "the room is what base64 needs");
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
