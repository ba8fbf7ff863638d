//! Values that can become the data of a znode.

use crate::Text;
use alloc::{string::String, vec::Vec};
use bytes::Bytes;

/// A value that can become the data of a znode.
///
/// `None` stands for null data, which differs from empty data. Text is stored as UTF-8.
pub trait IntoData {
    /// Returns the data; `None` for null.
    fn into_data(self) -> Option<Bytes>;
}

impl IntoData for Option<Bytes> {
    fn into_data(self) -> Option<Bytes> {
        self
    }
}

impl IntoData for Bytes {
    fn into_data(self) -> Option<Bytes> {
        Some(self)
    }
}

impl IntoData for &Bytes {
    fn into_data(self) -> Option<Bytes> {
        Some(self.clone())
    }
}

impl IntoData for Vec<u8> {
    fn into_data(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl IntoData for String {
    fn into_data(self) -> Option<Bytes> {
        Some(self.into())
    }
}

impl IntoData for Text {
    fn into_data(self) -> Option<Bytes> {
        Some(self.as_bytes().clone())
    }
}

impl IntoData for &str {
    fn into_data(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.as_bytes()))
    }
}

impl IntoData for &String {
    fn into_data(self) -> Option<Bytes> {
        self.as_str().into_data()
    }
}

impl IntoData for &[u8] {
    fn into_data(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self))
    }
}

impl IntoData for &Vec<u8> {
    fn into_data(self) -> Option<Bytes> {
        self.as_slice().into_data()
    }
}

impl<const LENGTH: usize> IntoData for [u8; LENGTH] {
    fn into_data(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(&self))
    }
}

impl<const LENGTH: usize> IntoData for &[u8; LENGTH] {
    fn into_data(self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_data_differs_from_empty_data() {
        assert_eq!(None.into_data(), None);
        assert_eq!("".into_data(), Some(Bytes::new()));
        let all = ["ab".into_data(), String::from("ab").into_data(), b"ab".into_data(), [b'a', b'b'].into_data()];
        assert!(all.iter().all(|data| data.as_deref() == Some(b"ab")));
    }
}
