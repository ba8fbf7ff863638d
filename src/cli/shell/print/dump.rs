//! Bytes as a table: 16 a line, in hexadecimal and as characters, as zkCli's `get -x` has it.

use std::fmt::Write;

const RULE: &str = "+--------+-------------------------------------------------+----------------+\n";

/// Returns the table, without the end of its last line.
pub(super) fn table(bytes: &[u8]) -> String {
    let mut text = String::from(
        "         +-------------------------------------------------+\n         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |\n",
    );
    text.push_str(RULE);
    for (row, line) in bytes.chunks(16).enumerate() {
        _ = write!(text, "|{:08x}|", row * 16);
        for at in 0..16 {
            match line.get(at) {
                Some(byte) => _ = write!(text, " {byte:02x}"),
                None => text.push_str("   "),
            }
        }
        text.push_str(" |");
        let shown = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
        text.extend(line.iter().map(shown));
        text.extend(std::iter::repeat_n(' ', 16 - line.len()));
        text.push_str("|\n");
    }
    text.push_str(RULE.trim_end());
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn table_has_offsets_bytes_and_characters() {
        let shown = super::table(b"0123456789abcdef\x00\xffz");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[1], "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |");
        assert_eq!(lines[3], "|00000000| 30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66 |0123456789abcdef|");
        assert_eq!(lines[4], "|00000010| 00 ff 7a                                        |..z             |");
        assert_eq!((lines[2], lines.len()), (lines[5], 6));
    }
}
