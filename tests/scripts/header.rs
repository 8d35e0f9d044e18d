//! The header of a script, as `lua/README.md` describes it.

use lockwright::internals::scripts::Script;

#[derive(Default)]
pub struct Header {
    pub name: String,
    pub version: u32,
    pub effect: String,
    pub layout: u32,
    pub keys: Vec<Slot>,
    pub args: Vec<Slot>,
    pub returns: Vec<Reply>,
    pub wakes: Vec<String>,
    pub cost: u64,
    pub needs: Vec<String>,
}

/// One slot of `KEYS` or `ARGV`.
pub struct Slot {
    /// What stands between the brackets.
    pub index: String,
    pub kind: String,
    pub text: String,
}

/// One form of reply: the types of its slots behind the word.
pub struct Reply {
    pub word: String,
    pub slots: Vec<String>,
    /// The types of a part at the end that may stand there any number of times.
    pub repeated: Vec<String>,
}

impl Header {
    pub fn of(script: &Script) -> Self {
        let (_, content) = script.parts.last().expect("a script has a body");
        let mut lines: Vec<String> = Vec::new();
        for line in content.lines().map_while(|line| line.strip_prefix("-- ")) {
            match lines.last_mut() {
                Some(last) if line.starts_with(' ') => *last = format!("{last} {}", line.trim()),
                _ => lines.push(line.to_owned()),
            }
        }
        let mut header = Self::default();
        let (name, version) = lines[0].split_once(", version ").expect("name and version");
        (header.name, header.version) = (name.to_owned(), version.parse().expect("a version"));
        for line in &lines[1..] {
            let (word, rest) = line.split_once(' ').expect("a word and what it says");
            header.read(word, rest.trim());
        }
        header
    }

    fn read(&mut self, word: &str, rest: &str) {
        if let Some(slot) = word.strip_prefix("KEYS") {
            return self.keys.push(Slot::read(slot, rest));
        }
        if let Some(slot) = word.strip_prefix("ARGV") {
            return self.args.push(Slot::read(slot, rest));
        }
        let first = rest.split(' ').next().unwrap_or_default().to_owned();
        match word {
            "EFFECT" => self.effect = rest.to_owned(),
            "LAYOUT" => self.layout = rest.parse().expect("a layout"),
            "RETURNS" => self.returns.push(Reply::read(rest)),
            "WAKES" => self.wakes.push(first),
            "COST" => self.cost = first.parse().expect("a number of commands"),
            "NEEDS" => self.needs = rest.split(' ').map(str::to_owned).collect(),
            other => panic!("{} has an unknown word in its header: {other}", self.name),
        }
    }
}

impl Slot {
    fn read(index: &str, rest: &str) -> Self {
        let index = index.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (kind, text) = rest.split_once(' ').expect("a type and what it means");
        Self { index, kind: kind.to_owned(), text: text.trim().to_owned() }
    }

    /// The name of the key that the slot is for: `K`, or `K:<suffix>`.
    pub fn key(&self) -> &str {
        self.text.split(": ").next().expect("a key")
    }

    /// Whether the slot is for the item at `position`, from 1: `[7]`, or `[3n-1]` where that fits.
    pub fn is_at(&self, position: usize) -> bool {
        let Some((step, shift)) = self.index.split_once('n') else {
            return self.index == position.to_string();
        };
        let step: usize = step.parse().expect("a step");
        let shift: isize = if shift.is_empty() { 0 } else { shift.parse().expect("a shift") };
        let from_zero = position.checked_add_signed(-shift);
        from_zero.is_some_and(|from_zero| from_zero >= step && from_zero.is_multiple_of(step))
    }
}

impl Reply {
    fn read(rest: &str) -> Self {
        let form = rest.split(" (").next().expect("a reply");
        let mut words = form.split(' ').filter(|word| !word.is_empty());
        let word = words.next().expect("a first word").to_owned();
        let (mut slots, mut repeated) = (Vec::new(), Vec::new());
        let mut is_group = false;
        for word in words {
            is_group |= word.starts_with('{');
            let kind = word.split_once(':').map_or(word, |(_, kind)| kind);
            let kind = kind.trim_end_matches("...").trim_end_matches('}').to_owned();
            if is_group || word.ends_with("...") {
                repeated.push(kind)
            } else {
                slots.push(kind)
            }
            is_group &= !word.contains('}');
        }
        Self { word, slots, repeated }
    }
}
