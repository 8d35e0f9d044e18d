//! The scripts: the only list of them, and a typed call and a typed reply for each.

/// One script, as it is shipped.
#[derive(Debug)]
pub struct Script {
    /// Folder and operation, `reentrant/acquire` for instance.
    pub name: &'static str,
    pub version: u32,
    /// The composed text, the only one that a server ever sees.
    pub text: &'static str,
    /// The files that the text is composed of, in order: path below `lua/`, and content.
    pub parts: &'static [(&'static str, &'static str)],
}

impl Script {
    /// The file and the line in it that line `line` of the composed text is; both count from one.
    pub fn locate(&self, line: u32) -> Option<(&'static str, u32)> {
        let mut left = line.checked_sub(1)?;
        for &(file, content) in self.parts {
            let lines = u32::try_from(content.matches('\n').count()).ok()?;
            if left < lines {
                return Some((file, left + 1));
            }
            left -= lines;
        }
        None
    }
}

/// A script call, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    pub script: &'static Script,
    pub keys: Vec<String>,
    pub args: Vec<String>,
}

/// Every script that a server is told when a client connects.
pub static ALL: &[&Script] = &[];
