//! Numbers as the server reads and writes them: stricter than Rust's, and with C's `%.17g`.

/// Reads an integer as the server does: no sign but a minus, no space, no leading zero.
pub(super) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] if text.len() == 1 => Some(0),
        [b'1'..=b'9', ..] => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Reads a score: what `strtod` takes in full, without leading space, and within the range of a double.
pub(super) fn parse_score(text: &[u8]) -> Option<f64> {
    let value = parse_double(text)?;
    let named = text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    let mantissa = text.split(|byte| byte.eq_ignore_ascii_case(&b'e')).next().unwrap_or_default();
    let lost = value == 0.0 && mantissa.iter().any(|byte| (b'1'..=b'9').contains(byte));
    ((value.is_finite() || named) && !lost).then_some(value)
}

/// One end of a range of scores.
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub value: f64,
    pub exclusive: bool,
}

impl Bound {
    /// Reads `5`, `(5`, `-inf`. Looser than a score: leading space is allowed, and nothing at all is zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let rest = text.strip_prefix(b"(");
        let exclusive = rest.is_some();
        let number = rest.unwrap_or(text);
        let value = if number.is_empty() { 0.0 } else { parse_double(number.trim_ascii_start())? };
        Some(Self { value, exclusive })
    }

    pub fn admits_from_below(self, score: f64) -> bool {
        if self.exclusive { score > self.value } else { score >= self.value }
    }

    pub fn admits_from_above(self, score: f64) -> bool {
        if self.exclusive { score < self.value } else { score <= self.value }
    }
}

fn parse_double(text: &[u8]) -> Option<f64> {
    let value: f64 = str::from_utf8(text).ok()?.parse().ok()?;
    (!value.is_nan()).then_some(value)
}

/// Writes a double as C's `%.17g` does: the server's form for scores and for numbers that a script passes on.
pub(super) fn format_double(value: f64) -> String {
    // Most numbers of our scripts are whole; the server's answer is the same, only slower.
    if value.abs() < 1e15 && value.trunc() == value && (value != 0.0 || value.is_sign_positive()) {
        return (value as i64).to_string();
    }
    if !value.is_finite() {
        let name = if value.is_nan() { "nan" } else { "inf" };
        return format!("{}{name}", if value.is_sign_negative() { "-" } else { "" });
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        without_zeros(&format!("{value:.decimals$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// A Lua number as an integer reply: truncated, and what does not fit is what the processor makes of it.
pub(super) fn truncate(value: f64) -> i64 {
    let limit = 9_223_372_036_854_775_808.0;
    if value >= -limit && value < limit { value as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        let read = |text: &str| parse_integer(text.as_bytes());
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("-7"), Some(-7));
        assert_eq!(read("9223372036854775807"), Some(i64::MAX));
        assert_eq!(read("-9223372036854775808"), Some(i64::MIN));
        for odd in ["", "-", "-0", "+1", "01", " 1", "1 ", "1.5", "1e3", "9223372036854775808", "0x1"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn doubles_are_written_as_in_c() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (1_700_000_000_123_456.0, "1700000000123456"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
            (-0.0, "-0"),
            (1.0 / 3.0, "0.33333333333333331"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
            (1e300, "1.0000000000000001e+300"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn scores_beyond_a_double_are_refused() {
        let read = |text: &str| parse_score(text.as_bytes());
        assert_eq!(read("inf"), Some(f64::INFINITY));
        assert_eq!(read("-1.5e3"), Some(-1500.0));
        for odd in ["", "nan", "1e400", "1e-400", " 1", "1 ", "abc", "(1"] {
            assert_eq!(read(odd), None, "{odd:?}");
        }
    }
}
