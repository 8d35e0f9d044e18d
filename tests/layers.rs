//! The layers of src/: a file never imports from a higher one. Read from the text of the files, so that no import
//! is missed that some feature or target compiles away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A module is in the layer of its longest prefix here; `""` is lib.rs.
const LAYERS: &[(u8, &[&str])] = &[
    (6, &["", "client"]),
    (5, &["lock", "fenced"]),
    (4, &["acquire", "guard", "handle", "local"]),
    (3, &["wakeup", "watchdog", "courier"]),
    (2, &["backend::redis", "backend::embedded"]),
    (1, &["backend", "scripts"]),
    (
        0,
        &[
            "error", "name", "owner", "ticket", "token", "lease", "config", "clock", "chance", "mutant",
            "sync",
        ],
    ),
];

/// The folders whose modules must not know each other.
const APART: &[&str] = &["lock"];

/// The only modules that know which back end there is.
const KNOW_BACK_ENDS: &[&str] = &["", "client"];
const BACK_ENDS: &[&str] = &["backend::redis", "backend::embedded"];

/// Crates that only one module may name.
const CONFINED: &[(&str, &str)] = &[("fred", "backend::redis::wire::fred")];

#[test]
fn no_file_imports_from_a_higher_layer() {
    let sources = sources();
    let modules: BTreeSet<String> = sources.iter().map(|(module, _)| module.clone()).collect();
    let complaints: Vec<String> =
        sources.iter().flat_map(|(module, text)| complaints(module, text, &modules)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    // A reader that finds nothing would find no fault either.
    let imports: usize =
        sources.iter().map(|(module, text)| File::read(module, text, &modules).paths.len()).sum();
    assert!(sources.len() > 20 && imports > 150, "{} files, {imports} paths", sources.len());
}

/// What the books leave to be sent is posted in the section that left it. (Behind it a closing may come in between: the
/// books have let go of a hold, and its leaving, or its downgrade, is dropped with the courier.)
#[test]
fn only_the_books_section_posts() {
    let posting: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(module, text)| module.starts_with("local") && text.contains("courier.post("))
        .map(|(module, _)| module)
        .collect();
    // The second one asks what the books know nothing of.
    assert_eq!(posting, BTreeSet::from(["local", "local::errands::looking"].map(str::to_owned)));
    let text = fs::read_to_string(root().join("local.rs")).expect("it is there");
    let send = text.split_once("fn send(&self, errand: Errand) {").expect("it is there").1;
    assert!(
        send.trim_start().starts_with("self.courier.post(") && text.matches("courier.post(").count() == 1
    );
}

#[test]
fn lib_has_no_logic() {
    let text = fs::read_to_string(root().join("lib.rs")).expect("lib.rs is there");
    assert_eq!(logic(parse("lib.rs", &text)), Vec::<String>::new());
    let text = "mod internals { fn f() {} } pub mod m { struct S; } fn f() {}";
    assert_eq!(logic(parse("a text", text)), ["struct", "fn"]);
}

/// The checker finds what it is there for.
#[test]
fn each_rule_can_be_broken() {
    let modules = [
        "",
        "client",
        "lock",
        "lock::fair",
        "lock::reentrant",
        "local",
        "local::state",
        "backend",
        "backend::redis",
        "backend::redis::wire",
        "backend::redis::wire::fred",
        "backend::embedded",
        "clock",
        "odd",
    ];
    let modules: BTreeSet<String> = modules.iter().map(|&module| module.to_owned()).collect();
    let faults = |module: &str, text: &str| complaints(module, text, &modules).len();
    for (module, text) in [
        ("clock", "use crate::backend::Value;"),
        ("clock", "use crate::{clock::Moment, local::{state::State}};"),
        ("clock", "fn f() { crate::client::connect() }"),
        ("clock", "use crate::Client;"),
        ("clock", "#[cfg(test)] mod tests { use super::super::local::Local; }"),
        ("local::state", "use super::super::lock;"),
        ("local", "use crate::backend; fn f() { backend::redis::connect() }"),
        ("local", "use crate::backend as b; fn f() { b::redis::connect() }"),
        ("backend", "pub use redis::connect;"),
        ("backend::redis", "use super::embedded::Engine;"),
        ("lock::fair", "use crate::lock::reentrant::ReentrantLock;"),
        ("lock", "pub use reentrant::ReentrantLock; use crate::backend::redis::Setup;"),
        ("backend::redis", "use fred::clients::Client;"),
        ("client", "fn f() { ::fred::init() }"),
        ("odd", "use crate::clock::Clock;"),
    ] {
        assert_eq!(faults(module, text), 1, "{module}: {text}");
    }
    for (module, text) in [
        ("client", "use crate::backend::redis::connect; use crate::local::Local;"),
        ("lock", "pub(crate) mod reentrant; pub use reentrant::ReentrantLock;"),
        ("local::state", "use super::Local; use crate::clock::Clock; // crate::client"),
        ("clock", "/// See crate::client::Client.\nconst A: &str = \"crate::client\";"),
        ("backend::redis::wire", "mod fred; use self::fred::Fred; fn f() { fred::dial() }"),
        ("backend::redis::wire::fred", "use fred::clients::Client;"),
    ] {
        assert_eq!(complaints(module, text, &modules), Vec::<String>::new(), "{module}: {text}");
    }
}

/// What is wrong with one file.
fn complaints(module: &str, text: &str, modules: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let Some(layer) = layer(module) else { return vec![format!("{module} is in no layer")] };
    let file = File::read(module, text, modules);
    for (path, line) in &file.paths {
        let target = target(path, modules);
        let mut fault = |why: &str| faults.push(format!("{module}:{line}: {}: {why}", path.join("::")));
        match self::layer(&target) {
            None => fault("is in no layer"),
            Some(above) if above > layer => {
                fault(&format!("layer {above}, imported from layer {layer}"));
            }
            Some(_) => {}
        }
        let own_back_end = BACK_ENDS.iter().find(|&&back_end| is_in(module, back_end));
        if let Some(back_end) = BACK_ENDS.iter().find(|&&back_end| is_in(&target, back_end)) {
            let knows = KNOW_BACK_ENDS.contains(&module) || own_back_end == Some(back_end);
            // Of a lower layer that has been said already.
            if !knows && layer >= 2 {
                fault("is a back end, which only the client knows");
            }
        }
        for folder in APART {
            let (one, other) = (child_of(folder, module), child_of(folder, &target));
            if one.is_some() && other.is_some() && one != other {
                fault("siblings that do not know each other");
            }
        }
    }
    for (name, line) in &file.crates {
        let home = CONFINED.iter().find(|(confined, _)| confined == name);
        if home.is_some_and(|(_, home)| *home != module) {
            faults.push(format!("{module}:{line}: names the crate {name}"));
        }
    }
    faults
}

fn layer(module: &str) -> Option<u8> {
    let entries = LAYERS.iter().flat_map(|(layer, modules)| modules.iter().map(move |name| (*name, *layer)));
    let fitting =
        entries.filter(|(name, _)| if name.is_empty() { module.is_empty() } else { is_in(module, name) });
    fitting.max_by_key(|(name, _)| name.len()).map(|(_, layer)| layer)
}

fn is_in(module: &str, ancestor: &str) -> bool {
    module.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn child_of<'a>(folder: &str, module: &'a str) -> Option<&'a str> {
    module.strip_prefix(folder)?.strip_prefix("::")?.split("::").next()
}

/// The module that a path leads into: its longest prefix that is one.
fn target(path: &[String], modules: &BTreeSet<String>) -> String {
    let prefixes = (0..=path.len()).rev().map(|length| path[..length].join("::"));
    prefixes.into_iter().find(|prefix| modules.contains(prefix)).unwrap_or_default()
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every module of the library and its text. Programs below src/bin use the public API like everybody.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                if path != root().join("bin") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is UTF-8");
                found.push((module_of(&path), text));
            }
        }
    }
    found.sort();
    found
}

fn module_of(path: &Path) -> String {
    let below = path.strip_prefix(root()).expect("the file is below src").with_extension("");
    let parts: Vec<&str> = below.iter().map(|part| part.to_str().expect("a module's name")).collect();
    match parts[..] {
        ["lib"] => String::new(),
        [ref folders @ .., "mod"] => folders.join("::"),
        _ => parts.join("::"),
    }
}

fn parse(module: &str, text: &str) -> TokenStream {
    text.parse().unwrap_or_else(|error| panic!("{module}: {error}"))
}

/// The words that begin an item with a body of its own, outside the module that only our tests see.
fn logic(tokens: TokenStream) -> Vec<String> {
    const LOGIC: &[&str] =
        &["fn", "impl", "struct", "enum", "union", "trait", "const", "static", "type", "let"];
    let mut found = Vec::new();
    let mut hidden = false;
    for token in tokens {
        match token {
            TokenTree::Group(_) if std::mem::take(&mut hidden) => {}
            TokenTree::Group(group) => found.extend(logic(group.stream())),
            TokenTree::Ident(word) if LOGIC.contains(&word.to_string().as_str()) => {
                found.push(word.to_string())
            }
            TokenTree::Ident(word) => hidden = word == "internals",
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

/// What one file names: paths of this crate from its root on, and other crates; each with its line.
#[derive(Default)]
struct File {
    paths: Vec<(Vec<String>, usize)>,
    crates: Vec<(String, usize)>,
}

impl File {
    fn read(module: &str, text: &str, modules: &BTreeSet<String>) -> Self {
        let module: Vec<String> =
            module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let tokens = parse(&module.join("::"), text);
        let mut reader = Reader { modules, imported: BTreeMap::new(), file: Self::default() };
        // Twice: a path may begin with a module that a `use` further down brings in.
        reader.walk(tokens.clone(), &module);
        reader.file = Self::default();
        reader.walk(tokens, &module);
        reader.file
    }
}

struct Reader<'a> {
    modules: &'a BTreeSet<String>,
    /// Modules that the file has brought into scope, by their name there.
    imported: BTreeMap<String, Vec<String>>,
    file: File,
}

impl Reader<'_> {
    fn walk(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            at = match &tokens[at..] {
                [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(body), ..]
                    if word == "mod" =>
                {
                    let mut inner = module.to_vec();
                    inner.push(name.to_string());
                    self.walk(body.stream(), &inner);
                    at + 3
                }
                [TokenTree::Ident(word), ..] if !follows_colons(&tokens, at) || is_absolute(&tokens, at) => {
                    self.word(&word.to_string(), &tokens, at, module)
                }
                [TokenTree::Group(group), ..] => {
                    self.walk(group.stream(), module);
                    at + 1
                }
                _ => at + 1,
            };
        }
    }

    /// Reads the path that begins with `word`, if one does. Returns where to read on.
    fn word(&mut self, word: &str, tokens: &[TokenTree], at: usize, module: &[String]) -> usize {
        let mut child = module.to_vec();
        child.push(word.to_owned());
        let base = match word {
            _ if is_absolute(tokens, at) => None,
            "crate" => Some(Vec::new()),
            "self" => Some(module.to_vec()),
            "super" => Some(module[..module.len().saturating_sub(1)].to_vec()),
            _ if self.modules.contains(&child.join("::")) => Some(child),
            _ => self.imported.get(word).cloned(),
        };
        let has_more = is_colons(tokens, at + 1);
        match base {
            Some(base) if has_more => self.tree(base, tokens, at + 3),
            None if has_more || used_whole(tokens, at) => {
                self.file.crates.push((word.to_owned(), line(&tokens[at])));
                at + 1
            }
            _ => at + 1,
        }
    }

    /// Reads the rest of a path, after its `::`, and what branches off it. Returns where it ends.
    fn tree(&mut self, mut path: Vec<String>, tokens: &[TokenTree], at: usize) -> usize {
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) => {
                match word.to_string().as_str() {
                    "super" => drop(path.pop()),
                    "self" => {}
                    word => path.push(word.to_owned()),
                }
                if is_colons(tokens, at + 1) {
                    return self.tree(path, tokens, at + 3);
                }
                let name = match &tokens[at + 1..] {
                    [TokenTree::Ident(word), TokenTree::Ident(name), ..] if word == "as" => {
                        Some(name.to_string())
                    }
                    _ => path.last().cloned(),
                };
                if let Some(name) = name.filter(|_| self.modules.contains(&path.join("::"))) {
                    self.imported.insert(name, path.clone());
                }
                self.file.paths.push((path, line(&tokens[at])));
                at + 1
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in
                    inner.split(|token| is_punct(Some(token), ',')).filter(|branch| !branch.is_empty())
                {
                    self.tree(path.clone(), branch, 0);
                }
                at + 1
            }
            // `*`, or a macro's variable: whatever it is, it is in there.
            _ => {
                let line = tokens.get(at).or(tokens.last()).map_or(0, line);
                self.file.paths.push((path, line));
                at + 1
            }
        }
    }
}

fn line(token: &TokenTree) -> usize {
    token.span().start().line
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn follows_colons(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_colons(tokens, at - 2)
}

/// Whether the word begins a path from the crates' root: `::word`.
fn is_absolute(tokens: &[TokenTree], at: usize) -> bool {
    follows_colons(tokens, at)
        && match at.checked_sub(3).map(|before| &tokens[before]) {
            Some(TokenTree::Ident(word)) => word == "use",
            before => !is_punct(before, '>'),
        }
}

/// Whether the word is all of a `use` or an `extern crate`.
fn used_whole(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(1).map(|before| &tokens[before]);
    matches!(before, Some(TokenTree::Ident(word)) if word == "use" || word == "crate")
}
