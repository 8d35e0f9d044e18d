//! Splits a stream of bytes into requests.

/// What has come of a request that is not complete.
#[derive(Default)]
pub struct Frames(Vec<u8>);

impl Frames {
    /// The requests that are complete with these bytes, to the byte. What is no array of bulk strings passes as it is.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(bytes);
        let mut requests = Vec::new();
        while let Some(length) = length(&self.0) {
            requests.push(self.0.drain(..length).collect());
        }
        requests
    }
}

/// How long the first request is, once all of it is there.
fn length(bytes: &[u8]) -> Option<usize> {
    if bytes.first()? != &b'*' {
        return Some(bytes.len());
    }
    let (words, mut at) = number(bytes, 1)?;
    for _ in 0..words {
        let (length, start) = number(bytes, at + 1)?;
        at = start + length + 2;
    }
    (at <= bytes.len()).then_some(at)
}

/// The number at `from`, and where the line after it begins.
fn number(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    let end = from + bytes.get(from..)?.windows(2).position(|pair| pair == b"\r\n")?;
    let digits = std::str::from_utf8(&bytes[from..end]).ok()?;
    Some((digits.parse().ok()?, end + 2))
}

#[test]
fn requests_are_told_apart_however_their_bytes_come() {
    let stream = b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$3\r\n*\r\n\r\n";
    let wanted = [&stream[..14], &stream[14..]];
    for piece in 1..=stream.len() {
        let mut frames = Frames::default();
        let requests: Vec<_> = stream.chunks(piece).flat_map(|bytes| frames.take(bytes)).collect();
        assert_eq!(requests, wanted);
    }
}
