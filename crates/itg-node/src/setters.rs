//! Setters of settings: one line for a field, two where its documentation has to say more.

/// Methods that set a field and return the settings, for the body of an `impl`: `name(field: Type);`, and with
/// `into Type` for whatever becomes the type.
macro_rules! setters {
    () => {};
    ($(#[$about:meta])* $name:ident($field:ident: into $kind:ty); $($rest:tt)*) => {
        $(#[$about])*
        #[must_use]
        pub fn $name(mut self, $field: impl Into<$kind>) -> Self {
            self.$field = $field.into();
            self
        }

        setters! { $($rest)* }
    };
    ($(#[$about:meta])* $name:ident($field:ident: $kind:ty); $($rest:tt)*) => {
        $(#[$about])*
        #[must_use]
        pub fn $name(mut self, $field: $kind) -> Self {
            self.$field = $field;
            self
        }

        setters! { $($rest)* }
    };
}

pub(crate) use setters;
