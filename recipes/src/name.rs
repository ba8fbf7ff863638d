//! Paths put together from a parent and a name.

use zoolet_model::Text;

/// The path of a child.
pub(crate) fn child(parent: &str, name: &str) -> Text {
    let slash = if parent == "/" { "" } else { "/" };
    let mut path = String::with_capacity(parent.len() + slash.len() + name.len());
    path.push_str(parent);
    path.push_str(slash);
    path.push_str(name);
    path.into()
}
