//! Encodes numbers and texts as bytes, and decodes them.

/// A buffer to which numbers and texts are appended.
#[derive(Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Empties the buffer, but keeps its memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the bytes written so far.
    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Writes seven bits per byte, the lowest first. All bytes but the last have the highest bit set.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Writes a number whose distance from `base`, in either direction, is likely to be small.
    pub(super) fn delta(&mut self, number: u64, base: u64) {
        let distance = number.wrapping_sub(base).cast_signed();
        self.number((distance << 1 ^ distance >> 63).cast_unsigned());
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.raw(text.as_bytes());
    }
}

/// The unread rest of what a [`Writer`] wrote. Panics on other input, which cannot occur: the bytes never leave the
/// process.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let [byte] = self.raw();
        byte
    }

    pub(super) fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    pub(super) fn delta(&mut self, base: u64) -> u64 {
        let number = self.number();
        base.wrapping_add(number >> 1 ^ (number & 1).wrapping_neg())
    }

    pub(super) fn raw<const N: usize>(&mut self) -> [u8; N] {
        let (raw, rest) = self
            .0
            .split_first_chunk()
            .expect("the writer wrote all bytes");
        self.0 = rest;
        *raw
    }

    /// Reads the bytes of a text, which suffice to compare it.
    pub(super) fn text_bytes(&mut self) -> &'a [u8] {
        let len = self.number() as usize;
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        text
    }

    pub(super) fn text(&mut self) -> &'a str {
        as_text(self.text_bytes())
    }
}

/// Returns the text that was written as these bytes.
pub(super) fn as_text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("written as a text")
}

#[cfg(test)]
mod tests {
    use super::{Reader, Writer};

    /// Numbers around the lengths of the encoding, and the extremes.
    const NUMBERS: [u64; 8] = [0, 1, 127, 128, 16_383, 16_384, 1 << 63, u64::MAX];

    #[test]
    fn numbers_round_trip() {
        for number in NUMBERS {
            let mut writer = Writer::default();
            writer.number(number);
            let mut reader = Reader(writer.written());
            assert_eq!(reader.number(), number);
            assert!(reader.0.is_empty());
        }
    }

    #[test]
    fn deltas_round_trip_from_any_base() {
        for (number, base) in NUMBERS.iter().flat_map(|n| NUMBERS.map(|base| (*n, base))) {
            let mut writer = Writer::default();
            writer.delta(number, base);
            assert_eq!(Reader(writer.written()).delta(base), number);
        }
    }

    #[test]
    fn small_delta_takes_one_byte() {
        for base in [0, 1 << 52, u64::MAX] {
            for distance in -64..64 {
                let mut writer = Writer::default();
                writer.delta(base.wrapping_add_signed(distance), base);
                assert_eq!(writer.written().len(), 1);
            }
        }
    }
}
