//! Reads a text within limits in one pass: it checks what [`scan`] checks while it builds a value.
//!
//! It sits between a parser and the visitor of the value, counts values and levels, compares names, and checks numbers
//! as they pass. It only reports that something is wrong. If the reason is needed, the scan finds it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::scan::{self, Bounds, MAX_NUMBER, SAFE_LEVELS};

/// [`MAX_NUMBER`] as an integer.
const MAX_INTEGER: u64 = MAX_NUMBER as u64;

/// Reads a `T`.
///
/// # Errors
/// When the text is not JSON, not within `bounds` according to [`scan::check`], or not a `T`.
pub fn from_str<'de, T: Deserialize<'de>>(text: &'de str, bounds: &Bounds) -> Result<T, sonic_rs::Error> {
    from_str_seed(text, bounds, PhantomData::<T>)
}

/// Like [`from_str`], with a seed.
///
/// # Errors
/// As [`from_str`]. The seed may have read a part by then.
pub fn from_str_seed<'de, S: DeserializeSeed<'de>>(
    text: &'de str,
    bounds: &Bounds,
    seed: S,
) -> Result<S::Value, sonic_rs::Error> {
    // Levels are counted while reading. But a value of the wrong type is skipped without being counted, and the parser
    // recurses into it.
    if scan::is_deeper(text, SAFE_LEVELS.max(bounds.depth)) {
        return Err(refused());
    }
    let mut parser = sonic_rs::Deserializer::from_str(text);
    let mut seen = Seen { bounds, values: 0, most: bounds.values, depth: 0, names: Vec::with_capacity(32) };
    let value = seed.deserialize(Checked { inner: &mut parser, seen: &mut seen })?;
    parser.end()?;
    Ok(value)
}

/// What was read so far.
struct Seen<'de, 'b> {
    bounds: &'b Bounds,
    values: usize,
    /// How many values there may be by the end of the current element, or by the end of all.
    most: usize,
    depth: usize,
    /// The names seen in each open object.
    names: Vec<Cow<'de, str>>,
}

impl<'de> Seen<'de, '_> {
    #[inline]
    fn value<E: Error>(&mut self) -> Result<(), E> {
        self.values += 1;
        if self.values > self.most { Err(refused()) } else { Ok(()) }
    }

    /// Begins an element of a list.
    #[inline]
    fn element(&mut self) {
        if self.depth == 2 {
            self.most = self.bounds.part_from(self.values);
        }
    }

    #[inline]
    fn open<E: Error>(&mut self) -> Result<(), E> {
        self.depth += 1;
        if self.depth > self.bounds.depth { Err(refused()) } else { Ok(()) }
    }

    /// Checks a name in an object.
    #[inline]
    fn name<E: Error>(&mut self, object: &mut Names, name: Cow<'de, str>) -> Result<(), E> {
        let (known, mark) = (&self.names[object.first..], mark(&name));
        if known.len() == self.bounds.members || (object.marks & mark != 0 && known.contains(&name)) {
            return Err(refused());
        }
        object.marks |= mark;
        self.names.push(name);
        Ok(())
    }
}

/// The names of an object.
struct Names {
    /// The index of its first name in `Seen::names`.
    first: usize,
    /// The marks of all its names. A name whose mark is not among them is new, and needs no comparison.
    marks: u64,
}

/// Hashes a name to one bit. Equal names have the same bit.
#[inline]
fn mark(name: &str) -> u64 {
    let byte = |byte: Option<&u8>| byte.map_or(0, |byte| u32::from(*byte));
    let bytes = name.as_bytes();
    1_u64.rotate_left(byte(bytes.first()) + 5 * byte(bytes.last()) + 11 * bytes.len() as u32)
}

#[cold]
fn refused<E: Error>() -> E {
    E::custom("out of bounds")
}

/// Wraps a deserializer, a seed or a visitor, and counts the values that pass through it.
struct Checked<'s, 'de, 'b, T> {
    inner: T,
    seen: &'s mut Seen<'de, 'b>,
}

/// Like [`Checked`], for the name of a member.
struct Named<'s, 'de, 'b, T> {
    inner: T,
    seen: &'s mut Seen<'de, 'b>,
    object: &'s mut Names,
}

/// The members of an object.
struct Members<'s, 'de, 'b, A> {
    inner: A,
    seen: &'s mut Seen<'de, 'b>,
    object: Names,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Checked<'_, 'de, '_, D> {
    type Error = D::Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.seen.value::<D::Error>()?;
        self.inner.deserialize_any(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.seen.value::<D::Error>()?;
        self.inner.deserialize_str(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.seen.value::<D::Error>()?;
        self.inner.deserialize_seq(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.seen.value::<D::Error>()?;
        self.inner.deserialize_map(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.seen.value::<D::Error>()?;
        self.inner.deserialize_f64(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserialize_str(visitor)
    }

    // An option and a newtype struct are not values, but contain one.
    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(Checked { inner: visitor, seen: self.seen })
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_newtype_struct(name, Checked { inner: visitor, seen: self.seen })
    }

    // Documents need no other methods.
    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct tuple tuple_struct
        struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Checked<'_, 'de, '_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    #[inline]
    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(value)
    }

    #[inline]
    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        if value.unsigned_abs() > MAX_INTEGER { Err(refused()) } else { self.inner.visit_i64(value) }
    }

    #[inline]
    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        if value > MAX_INTEGER { Err(refused()) } else { self.inner.visit_u64(value) }
    }

    #[inline]
    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        // NaN compares as not below.
        if value.abs() <= MAX_NUMBER { self.inner.visit_f64(value) } else { Err(refused()) }
    }

    #[inline]
    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.inner.visit_str(value)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(value)
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        // An option is counted by its content; this one has none.
        self.seen.value::<E>()?;
        self.inner.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(Checked { inner, seen: self.seen })
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(Checked { inner, seen: self.seen })
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.seen.open::<A::Error>()?;
        let value = self.inner.visit_seq(Checked { inner, seen: &mut *self.seen })?;
        self.seen.depth -= 1;
        if self.seen.depth == 1 {
            // What follows is not of its last element.
            self.seen.most = self.seen.bounds.values;
        }
        Ok(value)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.seen.open::<A::Error>()?;
        let first = self.seen.names.len();
        let value = self.inner.visit_map(Members {
            inner,
            seen: &mut *self.seen,
            object: Names { first, marks: 0 },
        })?;
        self.seen.names.truncate(first);
        self.seen.depth -= 1;
        Ok(value)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Checked<'_, 'de, '_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.seen.element();
        self.inner.next_element_seed(Checked { inner: seed, seen: &mut *self.seen })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Checked<'_, 'de, '_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Checked { inner, seen: self.seen })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Members<'_, 'de, '_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_key_seed(Named { inner: seed, seen: &mut *self.seen, object: &mut self.object })
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(Checked { inner: seed, seen: &mut *self.seen })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Named<'_, 'de, '_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(Named { inner, seen: self.seen, object: self.object })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Named<'_, 'de, '_, D> {
    type Error = D::Error;

    #[inline]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_str(Named { inner: visitor, seen: self.seen, object: self.object })
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Named<'_, 'de, '_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<V::Value, E> {
        self.seen.name::<E>(self.object, Cow::Borrowed(name))?;
        self.inner.visit_borrowed_str(name)
    }

    #[inline]
    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        self.seen.name::<E>(self.object, Cow::Owned(name.to_owned()))?;
        self.inner.visit_str(name)
    }
}
