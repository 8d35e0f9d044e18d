//! A store of one number in a file. It does what it is told, and knows nothing of its users.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::Failure;

/// The number, and the largest fencing token that has written it.
pub struct Store(File);

impl Store {
    /// Makes one, and returns its path.
    pub fn create(path: &Path, number: u64) -> Result<String, Failure> {
        std::fs::write(path, text(number, 0))?;
        Ok(path.display().to_string())
    }

    pub fn open(path: &Path) -> Result<Self, Failure> {
        Ok(Self(File::options().read(true).write(true).open(path)?))
    }

    pub fn read(&mut self) -> Result<u64, Failure> {
        Ok(self.both()?.0)
    }

    /// Writes, whoever asks.
    pub fn write(&mut self, number: u64) -> Result<(), Failure> {
        let token = self.both()?.1;
        self.put(number, token)
    }

    /// Writes, unless a larger token has written before; whether it did. Comparing and writing are one step, as they
    /// are in a database.
    pub fn write_fenced(&mut self, number: u64, token: u64) -> Result<bool, Failure> {
        self.0.lock()?;
        let fits = token >= self.both()?.1;
        if fits {
            self.put(number, token)?;
        }
        self.0.unlock()?;
        Ok(fits)
    }

    fn both(&mut self) -> Result<(u64, u64), Failure> {
        let mut text = String::new();
        self.0.rewind()?;
        self.0.read_to_string(&mut text)?;
        let (number, token) = text.split_once(' ').ok_or("the store has two numbers")?;
        Ok((number.parse()?, token.parse()?))
    }

    fn put(&mut self, number: u64, token: u64) -> Result<(), Failure> {
        self.0.rewind()?;
        Ok(self.0.write_all(text(number, token).as_bytes())?)
    }
}

/// Always as long, and written in one piece: a reader never sees half a number.
fn text(number: u64, token: u64) -> String {
    format!("{number:020} {token:020}")
}
