//! Which file of `src/` uses which other, read from the syntax tree: `use` declarations, and paths
//! in code that begin with `crate`, `self`, `super` or a module.
//!
//! A module is one file; an inline `mod` belongs to its file. A room that is a crate of its own
//! (`src/api/lib.rs`) is a module, too. Items and files under `#[cfg(test)]`
//! are left out. A name that a module re-exports counts as a use of the file that defines it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::files::TextFile;

/// The modules of the library, by path (`cache::core::store`; the root is empty).
pub(crate) struct Library {
    modules: BTreeMap<String, Module>,
}

/// One use of an item of another file.
pub(crate) struct Import {
    pub(crate) line: usize,
    /// The module that defines the item.
    pub(crate) module: String,
    /// The item, or nothing for the module itself.
    pub(crate) item: String,
}

#[derive(Default)]
struct Module {
    /// Absolute paths, with their lines.
    paths: Vec<(usize, Vec<String>)>,
    /// Public re-exports: the name, and the absolute path behind it.
    exports: HashMap<String, Vec<String>>,
    /// Modules of other files that are imported by name.
    aliases: HashMap<String, Vec<String>>,
    /// Paths that begin with a plain name, which may be an alias or a child module.
    relative: Vec<(usize, Vec<String>)>,
    /// Child modules that exist in tests only.
    test_children: BTreeSet<String>,
}

impl Library {
    /// Parses the Rust files below `src/`.
    pub(crate) fn parse(files: &[TextFile]) -> Self {
        let mut modules = BTreeMap::new();
        let crates = crates(files);
        for file in files {
            let Ok(path) = file.path.strip_prefix("src") else { continue };
            if !file.is("rs") || path.ends_with("main.rs") {
                continue;
            }
            let name = path.with_extension("");
            let name: Vec<_> =
                name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            let (name, root) = match name.as_slice() {
                [lib] if lib == "lib" => (Vec::new(), Vec::new()),
                [room, lib] if lib == "lib" => (vec![room.clone()], vec![room.clone()]),
                [room, ..] if crates.contains(room) => (name.clone(), vec![room.clone()]),
                _ => (name, Vec::new()),
            };
            let syntax = syn::parse_file(&file.text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.path.display()));
            let mut collector = Collector { module: Module::default(), name: name.clone(), root };
            collector.visit_file(&syntax);
            modules.insert(name.join("::"), collector.module);
        }
        let tests: Vec<String> = modules
            .iter()
            .flat_map(|(name, module)| {
                module.test_children.iter().map(move |child| join(name, child))
            })
            .collect();
        modules.retain(|name, _| !tests.iter().any(|test| is_within(name, test)));
        Self { modules }
    }

    /// The modules' paths.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// Returns the parts of other files that a module uses.
    pub(crate) fn imports(&self, name: &str) -> Vec<Import> {
        let Some(module) = self.modules.get(name) else { return Vec::new() };
        let relative = module.relative.iter().filter_map(|(line, path)| {
            let (first, rest) = path.split_first()?;
            let head = match module.aliases.get(first) {
                Some(alias) if self.modules.contains_key(&alias.join("::")) => alias.clone(),
                Some(_) => return None,
                None => {
                    let child = join(name, first);
                    self.modules.contains_key(&child).then(|| to_segments(&child))?
                }
            };
            Some((*line, [head, rest.to_vec()].concat()))
        });
        let paths = module.paths.iter().cloned().chain(relative);
        paths
            .filter_map(|(line, path)| {
                let (module, item) = self.resolve(path)?;
                (module != name && !module.is_empty()).then_some(Import { line, module, item })
            })
            .collect()
    }

    /// The module that defines what a path names, through re-exports.
    fn resolve(&self, mut path: Vec<String>) -> Option<(String, String)> {
        for _ in 0..REEXPORTS_MAX {
            let length = (0..=path.len())
                .rev()
                .find(|length| self.modules.contains_key(&path[..*length].join("::")))?;
            let name = path[..length].join("::");
            let Some(item) = path.get(length) else { return Some((name, String::new())) };
            match self.modules[&name].exports.get(item) {
                Some(target) => path = [target, &path[length + 1..]].concat(),
                None => return Some((name, item.clone())),
            }
        }
        None
    }
}

/// The rooms that are crates of their own.
fn crates(files: &[TextFile]) -> BTreeSet<String> {
    let roots = files.iter().filter_map(|file| {
        let mut names = file.path.strip_prefix("src").ok()?.iter();
        let (room, file) = (names.next()?, names.next()?);
        (file == "lib.rs" && names.next().is_none()).then(|| room.to_string_lossy().into_owned())
    });
    roots.collect()
}

/// Collects the paths of one file.
struct Collector {
    module: Module,
    /// The module that is being visited: the file's own path, and inline modules.
    name: Vec<String>,
    /// The path of `crate`: the room, if that is a crate of its own, otherwise empty.
    root: Vec<String>,
}

impl Collector {
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some([&self.root, rest].concat()),
            "self" => Some([&self.name, rest].concat()),
            "super" => {
                let supers = path.iter().take_while(|part| *part == "super").count();
                let parent = self.name.len().checked_sub(supers)?;
                Some([&self.name[..parent], &path[supers..]].concat())
            }
            _ => {
                let room = first.strip_prefix(CRATE_PREFIX)?.to_owned();
                Some([&[room], rest].concat())
            }
        }
    }

    fn add(&mut self, line: usize, path: Vec<String>) {
        match self.absolute(&path) {
            Some(absolute) => self.module.paths.push((line, absolute)),
            None => self.module.relative.push((line, path)),
        }
    }

    fn add_use(&mut self, item: &syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for Leaf { line, path, name } in leaves {
            let absolute = self.absolute(&path);
            // A path without `crate`, `self` or `super` may begin with a child module.
            let target = absolute.unwrap_or_else(|| [&self.name[..], &path].concat());
            if is_public && let Some(name) = &name {
                self.module.exports.insert(name.clone(), target.clone());
            }
            if let Some(name) = name {
                self.module.aliases.insert(name, target);
            }
            self.add(line, path);
        }
    }

    /// Finds paths in the tokens of a macro, which have no syntax tree.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_token_path(line, std::mem::take(&mut path));
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1;
                }
                other => {
                    self.add_token_path(line, std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_token_path(line, path);
    }

    fn add_token_path(&mut self, line: usize, path: Vec<String>) {
        if path.len() > 1 {
            self.add(line, path);
        }
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        } else if let syn::Item::Mod(module) = item {
            self.module.test_children.insert(module.ident.to_string());
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_some() {
            self.name.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.name.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(item);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add(path.span().start().line, segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.add_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// One name that a `use` declaration imports; `name` is none for a glob.
struct Leaf {
    line: usize,
    path: Vec<String>,
    name: Option<String>,
}

fn flatten(tree: &syn::UseTree, prefix: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    let mut leaf = |ident: &syn::Ident, name: String, prefix: &[String]| {
        let line = ident.span().start().line;
        if ident == "self" && !prefix.is_empty() {
            let name = prefix.last().filter(|_| name == "self").cloned().unwrap_or(name);
            leaves.push(Leaf { line, path: prefix.to_vec(), name: Some(name) });
        } else {
            let path = [prefix, &[ident.to_string()]].concat();
            leaves.push(Leaf { line, path, name: Some(name) });
        }
    };
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        syn::UseTree::Name(name) => leaf(&name.ident, name.ident.to_string(), prefix),
        syn::UseTree::Rename(rename) => leaf(&rename.ident, rename.rename.to_string(), prefix),
        syn::UseTree::Glob(glob) => {
            let line = glob.star_token.span().start().line;
            leaves.push(Leaf { line, path: prefix.clone(), name: None });
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// Whether `module` is `outer` or inside it.
pub(crate) fn is_within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn join(parent: &str, child: &str) -> String {
    if parent.is_empty() { child.to_owned() } else { format!("{parent}::{child}") }
}

fn to_segments(path: &str) -> Vec<String> {
    path.split("::").map(str::to_owned).collect()
}

/// Re-exports of re-exports that are followed.
const REEXPORTS_MAX: usize = 8;

/// The names of crates begin with it.
const CRATE_PREFIX: &str = "weir_";

#[cfg(test)]
pub(crate) fn library(files: &[(&str, &str)]) -> Library {
    let files: Vec<_> = files
        .iter()
        .map(|(path, text)| TextFile { path: path.into(), text: (*text).to_owned() })
        .collect();
    Library::parse(&files)
}

#[test]
fn imports_are_found_in_every_form() {
    let library = library(&[
        ("src/lib.rs", "pub mod a; pub mod b; pub mod c;"),
        ("src/a.rs", "mod inner; pub use inner::Deep; pub struct A;"),
        ("src/a/inner.rs", "pub struct Deep; fn f() -> super::A { super::A }"),
        (
            "src/b.rs",
            "use crate::{a::{self, Deep}, c as other};\n\
             fn f() { a::A; vec![crate::c::C]; other::C; }\n\
             #[cfg(test)] mod tests { use crate::d::D; }",
        ),
        ("src/c.rs", "pub struct C; mod inline { use super::super::a::A; }"),
        ("src/d.rs", "pub struct D;"),
    ]);
    let uses = |name: &str| {
        let imports = library.imports(name).into_iter();
        imports.map(|import| format!("{} {}", import.module, import.item)).collect::<BTreeSet<_>>()
    };
    assert_eq!(Vec::from_iter(uses("b")), ["a ", "a A", "a::inner Deep", "c ", "c C"]);
    assert_eq!(Vec::from_iter(uses("c")), ["a A"]);
    assert_eq!(Vec::from_iter(uses("a")), ["a::inner Deep"]);
    assert_eq!(Vec::from_iter(uses("a::inner")), ["a A"]);
}
