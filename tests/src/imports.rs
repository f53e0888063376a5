//! Imports among the files of one crate, and the circles that they form.
//!
//! An import is a path that leads to another file of the crate: in a `use`, in an expression, in a
//! macro. A name that a file only passes on (`pub use`) is imported from the file that defines it, by
//! those who use it. Tests inside a file and declarations of modules are no imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::tokens::{Token, tokens};

/// Path of a module, from the root of its crate.
type Module = Vec<String>;

/// Files of a crate by the modules whose text they hold.
type Modules<'a> = BTreeMap<Module, &'a String>;

/// Path that leads into the crate.
struct Path {
    /// From the root of the crate.
    segments: Vec<String>,
    /// Its end, as the file that wrote it calls it.
    name: String,
    /// True in a `pub use`.
    passed_on: bool,
}

/// Paths of a file, and its words beside those of `pub use`.
#[derive(Default)]
struct Contents {
    paths: Vec<Path>,
    words: BTreeSet<String>,
}

/// Circles among the files of a crate, given as path below `src` and text: files that import one
/// another, directly or through others of the circle.
///
/// # Panics
///
/// If a file is not Rust.
#[must_use]
pub fn circles(files: &BTreeMap<String, String>) -> BTreeSet<BTreeSet<String>> {
    let imports = imports(files);
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        files.keys().map(|file| (file, reached_from(file, &imports))).collect();
    let circle = |file| -> BTreeSet<String> {
        let others = reached[file].iter().filter(|other| reached[**other].contains(file));
        others.map(|other| (*other).clone()).collect()
    };
    files.keys().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// Files that `file` imports, directly or through others.
fn reached_from<'a>(
    file: &'a String,
    imports: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left = vec![file];
    while let Some(next) = left.pop() {
        left.extend(imports[next].iter().filter(|file| reached.insert(*file)));
    }
    reached
}

/// Files that each file imports.
fn imports(files: &BTreeMap<String, String>) -> BTreeMap<String, BTreeSet<String>> {
    let modules: Modules<'_> = files.keys().map(|file| (module_of(file), file)).collect();
    let mut contents: BTreeMap<&String, Contents> = BTreeMap::new();
    for (file, text) in files {
        let tokens = tokens(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        contents.entry(file).or_default().read(&tokens, &module_of(file), &modules);
    }
    let imported = |(file, found): (&&String, &Contents)| {
        let used = |path: &&Path| !path.passed_on || found.words.contains(&path.name);
        let to = found
            .paths
            .iter()
            .filter(used)
            .map(|path| file_of(&path.segments, &modules, &contents, &mut BTreeSet::new()));
        ((*file).clone(), to.filter(|to| to != *file).collect())
    };
    contents.iter().map(imported).collect()
}

/// Module whose text is in the file `src/FILE`.
fn module_of(file: &str) -> Module {
    let mut module: Module = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        module.pop();
    }
    module
}

/// File that holds what a path names: not one that only passes the name on.
fn file_of(
    segments: &[String],
    modules: &Modules<'_>,
    contents: &BTreeMap<&String, Contents>,
    seen: &mut BTreeSet<Vec<String>>,
) -> String {
    let mut depth = segments.len();
    while !modules.contains_key(&segments[..depth]) {
        depth -= 1;
    }
    let file = modules[&segments[..depth]];
    let next = segments.get(depth).and_then(|name| {
        contents[file].paths.iter().find(|path| path.name == *name && path.segments != segments)
    });
    match next {
        Some(path) if seen.insert(path.segments.clone()) => {
            file_of(&path.segments, modules, contents, seen)
        }
        _ => file.clone(),
    }
}

impl Contents {
    /// Adds what is in `tokens`, a part of `module`.
    fn read(&mut self, tokens: &[Token<'_>], module: &Module, modules: &Modules<'_>) {
        let (mut at, mut passed_on) = (0, false);
        while at < tokens.len() {
            match &tokens[at..] {
                rest if is_of_tests(rest) => {
                    // An item ends with its block or its semicolon.
                    at += rest.iter().position(Token::ends_item).unwrap_or(rest.len());
                }
                [Token::Word("mod"), Token::Word(name), Token::Group { inner, .. }, ..] => {
                    let path = [module.as_slice(), &[(*name).to_owned()]].concat();
                    self.read(inner, &path, modules);
                    at += 2;
                }
                [Token::Word("mod"), Token::Word(_), ..] => at += 1,
                [Token::Word("pub"), Token::Word("use"), ..] => {
                    passed_on = true;
                    at += 1;
                }
                [Token::Word("pub"), Token::Group { .. }, Token::Word("use"), ..] => {
                    passed_on = true;
                    at += 2;
                }
                rest @ [Token::Word(_), ..] => {
                    let mut paths = Vec::new();
                    at += read_path(rest, &[], passed_on, &mut paths) - 1;
                    if !passed_on {
                        self.words.extend(paths.iter().flat_map(|path| path.segments.clone()));
                    }
                    let ours = paths.into_iter().filter_map(|path| path.rooted(module, modules));
                    self.paths.extend(ours);
                }
                [Token::Group { inner, .. }, ..] => self.read(inner, module, modules),
                [end, ..] if end.ends_item() => passed_on = false,
                _ => {}
            }
            at += 1;
        }
    }
}

impl Path {
    /// The same path from the root of the crate, if it leads into the crate.
    fn rooted(self, module: &Module, modules: &Modules<'_>) -> Option<Self> {
        let (first, rest) = self.segments.split_first().filter(|(_, rest)| !rest.is_empty())?;
        let child = [module.as_slice(), std::slice::from_ref(first)].concat();
        let (mut base, mut rest) = match first.as_str() {
            "crate" => (Module::new(), rest),
            "self" => (module.clone(), rest),
            "super" => (module.clone(), self.segments.as_slice()),
            _ if modules.contains_key(&child) => (child, rest),
            _ => return None,
        };
        while let [up, inner @ ..] = rest
            && up == "super"
        {
            base.pop();
            rest = inner;
        }
        Some(Self { segments: [&base, rest].concat(), ..self })
    }
}

/// Returns true before `#[cfg(test)]`, also with more conditions.
fn is_of_tests(tokens: &[Token<'_>]) -> bool {
    let [Token::Sign('#'), Token::Group { inner, .. }, ..] = tokens else { return false };
    matches!(&inner[..], [Token::Word("cfg"), conditions] if conditions.has_word("test"))
}

/// Adds the paths that begin with `tokens` to `paths`, `prefix` before each: several where a group in
/// braces follows. Returns how many tokens they take.
fn read_path(
    tokens: &[Token<'_>],
    prefix: &[String],
    passed_on: bool,
    paths: &mut Vec<Path>,
) -> usize {
    let mut segments = prefix.to_vec();
    let mut at = 0;
    while let Some(Token::Word(word)) = tokens.get(at) {
        segments.push((*word).to_owned());
        at += 1;
        if !matches!(&tokens[at..], [Token::Sign(':'), Token::Sign(':'), ..]) {
            let renamed = match &tokens[at..] {
                [Token::Word("as"), Token::Word(name), ..] => name,
                _ => word,
            };
            paths.push(Path { segments, name: (*renamed).to_owned(), passed_on });
            return at;
        }
        at += 2;
    }
    if let Some(Token::Group { opened: '{', inner }) = tokens.get(at) {
        for part in inner.split(|token| matches!(token, Token::Sign(','))) {
            read_path(part, &segments, passed_on, paths);
        }
        return at + 1;
    }
    // A glob, or the type arguments of an expression.
    paths.push(Path { segments, name: String::new(), passed_on });
    at.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        circles(&files.collect()).into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn a_planted_circle_is_found_whatever_ties_it() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use c::D;"),
            ("a.rs", "use crate::b::{self, B}; pub struct A;"),
            ("b.rs", "pub struct B(super::D);"),
            ("c/mod.rs", "mod d; pub use d::D; fn f() -> D { d::of(1) }"),
            ("c/d.rs", "pub struct D; mod inner { fn g() { assert!(super::super::made()); } }"),
            ("c.rs", ""),
        ];
        let tied = [&files[..5], &[("e.rs", "use crate::a::A;")]].concat();
        assert_eq!(circles_of(&tied), [["c/d.rs", "c/mod.rs"]], "D is of c/d.rs");
        let mut whole = tied;
        whole[4].1 = "pub struct D; mod inner { fn g() { vec![super::super::super::a::A]; } }";
        assert_eq!(circles_of(&whole), [["a.rs", "b.rs", "c/d.rs"]]);
        whole[2].1 = "use crate::c::*; pub struct B;";
        assert_eq!(circles_of(&whole), [["a.rs", "b.rs", "c/d.rs", "c/mod.rs"]]);
    }

    #[test]
    fn tests_texts_and_names_passed_on_tie_nothing() {
        let passed_on = [
            ("main.rs", "mod a; mod b; pub(crate) use a::A; fn main() { b::run(); }"),
            ("a.rs", "pub struct A;"),
            ("b.rs", "//! See `crate::a`.\nuse crate::A; const S: &str = \"crate::main\";"),
        ];
        assert!(circles_of(&passed_on).is_empty());
        let of_tests = [
            ("lib.rs", "mod a; fn f() { a::g(); }"),
            ("a.rs", "pub fn g() {} #[cfg(test)] mod tests { use crate::f; } fn h() {}"),
        ];
        assert!(circles_of(&of_tests).is_empty());
    }
}
