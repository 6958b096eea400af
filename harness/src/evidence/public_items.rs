//! The public items of Rust sources, each with its signature, and the names that other sources use. It resolves no
//! imports and expands no macros: a name is what is written.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, ImplItem, Item, TraitItem, Type, Visibility};

/// Public items by path, such as `models::qwen3::Model::load`, each with its signature.
pub type PublicItems = BTreeMap<String, String>;

/// The public items of the files of a crate, by path below `src/`. A file that is no Rust gives none.
pub fn public_items<'f>(files: impl IntoIterator<Item = (&'f str, &'f str)>) -> PublicItems {
    let mut items = PublicItems::new();
    for (path, text) in files {
        if let Ok(file) = syn::parse_file(text) {
            collect(&module_of(path), &file.items, &mut items);
        }
    }
    items
}

/// Every name that is written in the files that mention a crate.
pub fn names_used<'f>(krate: &str, files: impl IntoIterator<Item = &'f str>) -> BTreeSet<String> {
    let krate = krate.replace('-', "_");
    let mut used = BTreeSet::new();
    for text in files {
        let Ok(tokens) = text.parse::<TokenStream>() else { continue };
        let mut names = BTreeSet::new();
        words(tokens, &mut names);
        if names.contains(&krate) {
            used.extend(names);
        }
    }
    used
}

/// Whether names that are used can mean an item: its own, for what belongs to a type that of the type, and that of the
/// module which holds it.
pub fn is_used(item: &str, used: &BTreeSet<String>) -> bool {
    let mut parts = item.rsplit("::");
    let is_written = |part: Option<&str>| part.is_none_or(|part| used.contains(part));
    let (name, mut holder) = (parts.next(), parts.next());
    if holder.is_some_and(|holder| holder.starts_with(char::is_uppercase)) {
        if !is_written(holder) {
            return false;
        }
        holder = parts.next();
    }
    is_written(name) && is_written(holder)
}

fn module_of(path: &str) -> String {
    let path = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if matches!(path, "lib" | "main") { String::new() } else { path.replace('/', "::") }
}

fn collect(module: &str, list: &[Item], items: &mut PublicItems) {
    let path = |name: &str| if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
    for item in list {
        match item {
            Item::Fn(found) if is_public(&found.vis) => {
                items.insert(path(&found.sig.ident.to_string()), text(&found.sig));
            }
            Item::Struct(found) if is_public(&found.vis) => {
                let mut kept = found.clone();
                kept.attrs.clear();
                private_out(&mut kept.fields);
                items.insert(path(&found.ident.to_string()), text(&kept));
            }
            Item::Enum(found) if is_public(&found.vis) => {
                let mut kept = found.clone();
                kept.attrs.clear();
                for variant in &mut kept.variants {
                    variant.attrs.clear();
                    variant.fields.iter_mut().for_each(|field| field.attrs.clear());
                }
                items.insert(path(&found.ident.to_string()), text(&kept));
            }
            Item::Trait(found) if is_public(&found.vis) => {
                items.insert(
                    path(&found.ident.to_string()),
                    format!("trait {} {}", found.ident, text(&found.generics)),
                );
                for part in &found.items {
                    if let TraitItem::Fn(method) = part {
                        let name = format!("{}::{}", found.ident, method.sig.ident);
                        items.insert(path(&name), text(&method.sig));
                    }
                }
            }
            Item::Type(found) if is_public(&found.vis) => {
                items.insert(path(&found.ident.to_string()), text(&found.ty));
            }
            Item::Const(found) if is_public(&found.vis) => {
                items.insert(path(&found.ident.to_string()), format!("const {}", text(&found.ty)));
            }
            Item::Static(found) if is_public(&found.vis) => {
                items.insert(path(&found.ident.to_string()), format!("static {}", text(&found.ty)));
            }
            Item::Use(found) if is_public(&found.vis) => {
                let tree = text(&found.tree);
                items.insert(path(&format!("use {tree}")), tree);
            }
            Item::Macro(found) => {
                if let Some(name) = found.ident.as_ref().filter(|_| has(&found.attrs, "macro_export")) {
                    items.insert(format!("{name}!"), "macro".to_owned());
                }
            }
            Item::Mod(found) => {
                if is_public(&found.vis) {
                    items.insert(path(&found.ident.to_string()), "mod".to_owned());
                }
                let is_test = found.attrs.iter().any(|attribute| text(&attribute.meta).contains("test"));
                if let Some((_, inner)) = found.content.as_ref().filter(|_| !is_test) {
                    collect(&path(&found.ident.to_string()), inner, items);
                }
            }
            Item::Impl(found) if found.trait_.is_none() => {
                let Some(owner) = type_name(&found.self_ty) else { continue };
                for part in &found.items {
                    match part {
                        ImplItem::Fn(method) if is_public(&method.vis) => {
                            items.insert(path(&format!("{owner}::{}", method.sig.ident)), text(&method.sig));
                        }
                        ImplItem::Const(constant) if is_public(&constant.vis) => {
                            let name = format!("{owner}::{}", constant.ident);
                            items.insert(path(&name), format!("const {}", text(&constant.ty)));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

/// Leaves only what others can see of a struct's fields.
fn private_out(fields: &mut Fields) {
    match fields {
        Fields::Named(named) => {
            let public = named.named.iter().filter(|field| is_public(&field.vis)).cloned();
            named.named = public
                .map(|mut field| {
                    field.attrs.clear();
                    field
                })
                .collect();
        }
        Fields::Unnamed(unnamed) => unnamed.unnamed.iter_mut().for_each(|field| field.attrs.clear()),
        Fields::Unit => {}
    }
}

fn text(of: &impl ToTokens) -> String {
    of.to_token_stream().to_string()
}

fn words(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                found.insert(word.to_string());
            }
            TokenTree::Group(group) => words(group.stream(), found),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_what_others_can_see() {
        let lib = "pub mod models;\nmod hidden { pub fn inside() {} }\npub(crate) fn own() {}\n\
                   /// Loads.\npub fn load(path: &str) -> Result<()> { own(); Ok(()) }\n\
                   #[macro_export]\nmacro_rules! make { () => {} }\n#[cfg(test)]\nmod tests { pub fn t() {} }\n";
        let model = "pub struct Model { /// The size.\n pub size: usize, cache: Vec<u8> }\n\
                     impl Model { pub fn new(size: usize) -> Self { todo() } fn private(&self) {} }\n\
                     impl Drop for Model { fn drop(&mut self) {} }\npub trait Run { fn run(&self) -> i32; }\n";
        let items =
            public_items([("src/lib.rs", lib), ("src/models/mod.rs", model), ("src/broken.rs", "fn (")]);
        let names: Vec<&str> = items.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "hidden::inside",
                "load",
                "make!",
                "models",
                "models::Model",
                "models::Model::new",
                "models::Run",
                "models::Run::run"
            ]
        );
        assert_eq!(items["load"], "fn load (path : & str) -> Result < () >");
        assert!(!items["models::Model"].contains("cache") && items["models::Model"].contains("size"));
    }

    #[test]
    fn an_item_is_used_when_its_name_and_its_type_are_written() {
        let consumer = "use some_crate::models::Model;\nfn main() { let m = Model::new(1); m.run(); }";
        let used = names_used("some-crate", [consumer, "fn elsewhere() { Other::load() }"]);
        for (item, expected) in [
            ("models::Model::new", true),
            ("models::Other::new", false),
            ("load", false),
            ("models::Model", true),
            ("others::Model", false),
            ("models::Run::run", false),
        ] {
            assert_eq!(is_used(item, &used), expected, "{item}");
        }
    }
}
