//! Imports between the files of one crate, read from the source as text.
//!
//! File A imports file B when A names an item that B defines. Re-exports are followed to the file that defines the item, so `mod
//! x;` and `pub use x::Y;` alone are not imports. Code under `#[cfg(test)]` and method calls, which name no path, do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::source;

/// A module of the crate: `["tls", "hello"]` is `crate::tls::hello`.
type Module = Vec<String>;

/// Imports of each module: the imported modules, and the names imported from each.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

/// Returns one line for each import cycle in the crate with its sources in `folder`, with the imports that form it.
pub(crate) fn circles_below(folder: &Path) -> Vec<String> {
    let modules = source::modules(folder);
    let imports = imports_of(&modules);
    let circles = strongly_connected(&imports);
    circles.into_iter().map(|circle| described(&circle, &imports)).collect()
}

fn described(circle: &BTreeSet<Module>, imports: &Imports) -> String {
    let mut text = format!("{} files import each other:", circle.len());
    for module in circle {
        for (other, names) in
            imports.get(module).into_iter().flatten().filter(|(other, _)| circle.contains(*other))
        {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            text += &format!("\n    {} -> {}: {}", shown(module), shown(other), names.join(", "));
        }
    }
    text
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "lib".to_owned() } else { module.join("::") }
}

fn imports_of(modules: &source::Modules) -> Imports {
    let mut imports = Imports::new();
    for (module, source) in modules {
        let own = imports.entry(module.clone()).or_default();
        for path in paths_named(module, source, modules) {
            let Some((definer, name)) = definer_of(&path, module, modules) else { continue };
            if definer != *module {
                own.entry(definer).or_default().insert(name);
            }
        }
    }
    imports
}

/// Returns every path that the module's code names: its imports, re-exports that the module itself uses, and paths in its text.
fn paths_named(module: &Module, source: &source::Source, modules: &source::Modules) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for import in &source.imports {
        let is_used = !import.is_public || source::names(&source.body, &import.alias);
        if import.alias == "*" && import.is_public || !is_used && import.alias != "_" {
            continue;
        }
        let is_module =
            matches!(definer_of(&import.path, module, modules), Some((_, name)) if name.is_empty());
        if is_module {
            // `use super::wire;` imports what is then named as `wire::Frame`.
            for tail in source::paths_after(&source.body, &import.alias) {
                paths.push(import.path.iter().cloned().chain(tail).collect());
            }
        } else {
            paths.push(import.path.clone());
        }
    }
    for root in ["crate", "self", "super"] {
        for tail in source::paths_after(&source.body, root) {
            paths.push(std::iter::once(root.to_owned()).chain(tail).collect());
        }
    }
    let children =
        modules.keys().filter(|other| other.len() == module.len() + 1 && other.starts_with(module));
    for child in children.filter_map(|child| child.last()) {
        for tail in source::paths_after(&source.body, child) {
            paths.push(std::iter::once(child.clone()).chain(tail).collect());
        }
    }
    paths
}

/// Returns the module that defines the item which `path` names inside `module`, and the item's name there. The name is empty for a
/// module itself. Returns `None` for items defined outside the crate.
fn definer_of(path: &[String], module: &Module, modules: &source::Modules) -> Option<(Module, String)> {
    resolve(path, module, modules, &mut BTreeSet::new())
}

fn resolve(
    path: &[String],
    module: &Module,
    modules: &source::Modules,
    seen: &mut BTreeSet<(Module, String)>,
) -> Option<(Module, String)> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => follow(Vec::new(), rest, modules, seen),
        "self" => follow(module.clone(), rest, modules, seen),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let above = module.get(..module.len().checked_sub(ups)?)?.to_vec();
            follow(above, &path[ups..], modules, seen)
        }
        child => {
            let is_child = modules.contains_key(&joined(module, child));
            if is_child { follow(module.clone(), path, modules, seen) } else { None }
        }
    }
}

fn follow(
    mut module: Module,
    mut path: &[String],
    modules: &source::Modules,
    seen: &mut BTreeSet<(Module, String)>,
) -> Option<(Module, String)> {
    while let Some((first, rest)) = path.split_first() {
        let below = joined(&module, first);
        if !modules.contains_key(&below) {
            break;
        }
        module = below;
        path = rest;
    }
    let source = modules.get(&module)?;
    let Some((name, rest)) = path.split_first() else { return Some((module, String::new())) };
    if !seen.insert((module.clone(), name.clone())) {
        return None;
    }
    if source.defined.contains(name) {
        return Some((module, name.clone()));
    }
    if let Some(import) = source.imports.iter().find(|import| import.alias == *name) {
        let (definer, found) = resolve(&import.path, &module, modules, seen)?;
        return if found.is_empty() && !rest.is_empty() {
            follow(definer, rest, modules, seen)
        } else {
            Some((definer, found))
        };
    }
    for import in source.imports.iter().filter(|import| import.is_public && import.alias == "*") {
        let all = &import.path[..import.path.len() - 1];
        let Some((definer, _)) = resolve(all, &module, modules, seen) else { continue };
        match follow(definer, path, modules, seen) {
            Some((definer, found)) if modules[&definer].defined.contains(&found) => {
                return Some((definer, found));
            }
            _ => {}
        }
    }
    Some((module, name.clone()))
}

fn joined(module: &Module, child: &str) -> Module {
    module.iter().cloned().chain([child.to_owned()]).collect()
}

/// Returns the sets of at least two modules in which each module reaches every other.
fn strongly_connected(imports: &Imports) -> Vec<BTreeSet<Module>> {
    let reaches: BTreeMap<&Module, BTreeSet<&Module>> =
        imports.keys().map(|module| (module, reached_from(module, imports))).collect();
    let mut circles: Vec<BTreeSet<Module>> = Vec::new();
    for (module, reached) in &reaches {
        if circles.iter().any(|circle| circle.contains(*module)) {
            continue;
        }
        let circle: BTreeSet<Module> = reached
            .iter()
            .filter(|other| reaches.get(**other).is_some_and(|back| back.contains(*module)))
            .map(|other| (*other).clone())
            .collect();
        if circle.len() > 1 {
            circles.push(circle);
        }
    }
    circles
}

fn reached_from<'a>(module: &'a Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut next = vec![module];
    while let Some(module) = next.pop() {
        for other in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let modules = files
            .iter()
            .map(|(module, text)| {
                let module = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
                (module, source::Source::parse(text))
            })
            .collect();
        strongly_connected(&imports_of(&modules))
            .iter()
            .map(|circle| circle.iter().map(shown).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn import_cycles_are_detected_in_every_path_form() {
        for (a, b) in [
            ("use crate::b::Y; pub struct X;", "use super::a::X; pub struct Y;"),
            (
                "use crate::{b::{self}}; pub struct X; fn f() -> b::Y { b::Y }",
                "use crate::a; pub struct Y; fn f(x: a::X) {}",
            ),
            ("pub struct X; fn f() { let y = crate::b::Y; }", "pub struct Y; fn f(_: super::a::X) {}"),
        ] {
            assert_eq!(imports(&[("", "mod a; mod b;"), ("a", a), ("b", b)]), ["a b"], "{a} {b}");
        }
    }

    #[test]
    fn re_exports_are_resolved_to_the_defining_file() {
        let facade = ("", "mod a; mod b; pub use a::X; pub use b::*;");
        let a = ("a", "use crate::Y; pub struct X;");
        assert!(imports(&[facade, a, ("b", "pub struct Y;")]).is_empty());
        assert_eq!(imports(&[facade, a, ("b", "use crate::X; pub struct Y;")]), ["a b"]);
    }

    #[test]
    fn cycle_between_parent_and_child_module_is_detected() {
        let parent = "mod child; pub struct Limits; fn f() { child::run(); }";
        assert_eq!(imports(&[("", parent), ("child", "use super::Limits; pub fn run() {}")]), ["lib child"]);
    }

    #[test]
    fn tests_comments_and_strings_count_as_no_import() {
        let b = "pub struct Y; // crate::a::X\nconst T: &str = \"crate::a::X\";\n#[cfg(test)]\nmod tests { use crate::a::X; }";
        assert!(
            imports(&[("", "mod a; mod b;"), ("a", "use crate::b::Y; pub struct X;"), ("b", b)]).is_empty()
        );
    }
}
