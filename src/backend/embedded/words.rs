//! The words of one command, in one buffer that is used again for the next.

use std::ops::Index;

/// A command's name and arguments.
#[derive(Debug, Default)]
pub(super) struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        (index < self.len()).then(|| &self[index])
    }

    /// The words from `index` on.
    pub fn from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        (index..self.len()).map(|index| &self[index])
    }

    /// The words from `index` on, two at a time.
    pub fn pairs_from(&self, index: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        (index..self.len().saturating_sub(1)).step_by(2).map(|index| (&self[index], &self[index + 1]))
    }

    /// Whether the word is `option`, in whatever case.
    pub fn is(&self, index: usize, option: &str) -> bool {
        self.get(index).is_some_and(|word| word.eq_ignore_ascii_case(option.as_bytes()))
    }
}

impl Index<usize> for Words {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }
}
