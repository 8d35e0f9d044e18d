//! The words of a call, end to end in one text: a script call has six to ten, and one by one each would be allocated,
//! and set free on another thread than it was allocated on.

use std::ops::Index;

/// Texts in an order. Each may hold any character, and be empty.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Words {
    text: String,
    ends: Vec<usize>,
}

impl Words {
    /// Room for so many words of so many bytes together.
    pub fn with_capacity(words: usize, bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ends: Vec::with_capacity(words) }
    }

    pub fn push(&mut self, word: &str) {
        self.write(|text| text.push_str(word));
    }

    /// Two texts as one word.
    pub fn push_joined(&mut self, first: &str, second: &str) {
        self.write(|text| {
            text.push_str(first);
            text.push_str(second);
        });
    }

    pub fn push_number(&mut self, number: u64) {
        self.write(|text| write_number(text, number));
    }

    /// A word that `write` appends.
    pub fn write(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// All words of `other` from the one at `first` on.
    pub fn append(&mut self, other: &Self, first: usize) {
        let (from, to) = (other.start(first), self.text.len());
        self.text.push_str(&other.text[from..]);
        self.ends.extend(other.ends[first..].iter().map(|end| end - from + to));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes they have together.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    pub fn get(&self, at: usize) -> Option<&str> {
        self.ends.get(at).map(|&end| &self.text[self.start(at)..end])
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        (0..self.len()).map(|at| &self[at])
    }

    /// The text, and where each word ends in it.
    pub fn into_parts(self) -> (String, Vec<usize>) {
        (self.text, self.ends)
    }

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before])
    }
}

impl Index<usize> for Words {
    type Output = str;

    fn index(&self, at: usize) -> &str {
        self.get(at).expect("there are so many words")
    }
}

impl<'a> Extend<&'a str> for Words {
    fn extend<I: IntoIterator<Item = &'a str>>(&mut self, words: I) {
        words.into_iter().for_each(|word| self.push(word));
    }
}

impl<'a> FromIterator<&'a str> for Words {
    fn from_iter<I: IntoIterator<Item = &'a str>>(words: I) -> Self {
        let mut all = Self::default();
        all.extend(words);
        all
    }
}

impl<const N: usize> From<[&str; N]> for Words {
    fn from(words: [&str; N]) -> Self {
        words.into_iter().collect()
    }
}

/// Appends `number` in digits, without the machinery of formats.
pub fn write_number(text: &mut String, mut number: u64) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len() - 1;
    loop {
        digits[first] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
        first -= 1;
    }
    text.push_str(std::str::from_utf8(&digits[first..]).expect("they are digits"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_apart() {
        let mut words = Words::with_capacity(4, 8);
        words.extend(["one", "", "drei"]);
        words.push_joined("a", "b");
        words.push_number(40);
        assert_eq!(words.iter().collect::<Vec<_>>(), ["one", "", "drei", "ab", "40"]);
        assert_eq!((words.len(), &words[2], words.get(5), words.bytes()), (5, "drei", None, 11));
        let mut others = Words::from(["x"]);
        others.append(&words, 1);
        others.append(&words, 5);
        assert_eq!(others, Words::from(["x", "", "drei", "ab", "40"]));
        assert!(Words::default().is_empty());
    }

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 7, 10, 99, 100, 1_764_542_000_000_000, u64::MAX] {
            let mut text = String::new();
            write_number(&mut text, number);
            assert_eq!(text, number.to_string());
        }
    }
}
