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

/// A script call, ready to be sent.
#[derive(Clone, Debug)]
pub struct Call {
    pub script: &'static Script,
    pub keys: Vec<String>,
    pub args: Vec<String>,
}
