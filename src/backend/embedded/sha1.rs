//! SHA-1 (FIPS 180-4): the name under which a server knows a script. Not for secrets.

/// The digest in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    // Room for the length behind the end mark.
    padded.resize((padded.len() + 8).next_multiple_of(64), 0);
    let bits = (bytes.len() as u64) * 8;
    let end = padded.len() - 8;
    padded[end..].copy_from_slice(&bits.to_be_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        compress(&mut state, block);
    }
    state.iter().map(|word: &u32| format!("{word:08x}")).collect()
}

fn compress(state: &mut [u32; 5], block: &[u8]) {
    let mut schedule = [0_u32; 80];
    for (word, bytes) in schedule.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |sum, &byte| sum << 8 | u32::from(byte));
    }
    for t in 16..80 {
        let mixed = schedule[t - 3] ^ schedule[t - 8] ^ schedule[t - 14] ^ schedule[t - 16];
        schedule[t] = mixed.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (t, word) in schedule.iter().enumerate() {
        let (mix, constant) = match t / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next = a.rotate_left(5).wrapping_add(mix).wrapping_add(e);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next.wrapping_add(constant).wrapping_add(*word));
    }
    for (sum, word) in state.iter_mut().zip([a, b, c, d, e]) {
        *sum = sum.wrapping_add(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_digests() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(b"return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let lengths: String = (50..70).map(|n| hex(&vec![b'a'; n])).collect();
        assert_eq!(hex(lengths.as_bytes()), LENGTHS);
    }

    /// Of the digests of 50 to 69 times `a`, all in a row, as `sha1sum` gives it.
    const LENGTHS: &str = "499b32ed807b3e124a5aae33c28b3cc0ddd9afc1";
}
