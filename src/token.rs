//! Fencing tokens, as the server grants them: in blocks.

/// Tokens are below this: Lua's numbers skip some from here on.
pub const TOKEN_LIMIT: u64 = 1 << 53;
/// How many tokens one grant of an exclusive lock carries, where its client may pass the hold on among its own
/// tasks: each of them gets a token of its own.
pub const PASSING_BLOCK: u64 = 64;
/// How many tokens a write carries: its own, and the one that readers show until the next write.
pub const WRITE_BLOCK: u64 = 2;
/// How many tokens a read carries: it shows the last one that was minted.
pub const READ_BLOCK: u64 = 0;
/// How many tokens a grant carries that is never passed on.
pub const SINGLE: u64 = 1;

/// What is left of the block of a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenBlock {
    next: u64,
    left: u64,
}

impl TokenBlock {
    /// The block of `length` tokens that begins with `first`.
    pub fn new(first: u64, length: u64) -> Self {
        Self { next: first, left: length }
    }

    /// The next token, larger than every earlier one; `None` when the block is used up.
    pub fn take(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let token = self.next;
        self.next += 1;
        Some(token)
    }

    /// Whether [`TokenBlock::take`] has one more.
    pub fn is_used_up(self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends() {
        let mut block = TokenBlock::new(10, 2);
        assert_eq!((block.take(), block.take(), block.take()), (Some(10), Some(11), None));
        assert!(block.is_used_up());
    }
}
