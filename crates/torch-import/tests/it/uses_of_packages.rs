//! Uses of other packages, some of which are known as the package writes them.

use torch_import::Risk;

use crate::pickled::{build, call, dict, global, loader, new, text, tuple};
use crate::uses::{risks, worst};

#[test]
fn other_packages_are_unknown_whatever_their_use() {
    let net = new(&global("mylib", "Net"), &[]);
    assert_eq!(worst(&build(&net, &dict(&[("a", loader())]))), Risk::Unknown);
    assert_eq!(worst(&call(&call(&global("mylib", "make"), &[]), &[])), Risk::Unknown);
}

fn with_keywords(class: &[u8], args: &[Vec<u8>], keywords: &[(&str, Vec<u8>)]) -> Vec<u8> {
    [class, &tuple(args), &dict(keywords), b"\x92"].concat()
}

/// What sympy writes is known; what only looks like it reaches `sympify`, which evaluates texts, or `Symbol.__new__` with anything.
#[test]
fn sympy_is_known_as_it_writes_itself() {
    let number = |name: &str| global("sympy.core.numbers", name);
    let symbol = global("sympy.core.symbol", "Symbol");
    let int = |value: u8| vec![b'K', value];
    let (yes, x) = (b"\x88".to_vec(), new(&symbol, &[text("x")]));
    let add = global("sympy.core.add", "Add");
    let float = tuple(&[int(0), text("3"), int(1), int(2)]);
    let positive = with_keywords(&symbol, &[text("x")], &[("positive", yes.clone())]);
    for known in [
        x.clone(),
        positive.clone(),
        new(&number("Integer"), &[int(3)]),
        new(&number("Rational"), &[int(1), int(3)]),
        new(&number("Half"), &[]),
        with_keywords(&number("Float"), std::slice::from_ref(&float), &[("precision", int(53))]),
        new(&add, &[x.clone(), new(&number("Integer"), &[int(3)])]),
        [b"}".as_slice(), &positive, b"K\x01s"].concat(),
    ] {
        assert_eq!(worst(&known), Risk::Known, "{:?}", risks(&known));
    }
    for found in [
        call(&symbol, &[text("x")]),
        new(&symbol, std::slice::from_ref(&x)),
        new(&number("Integer"), &[text("3")]),
        new(&number("Rational"), &[text("1"), int(3)]),
        with_keywords(&symbol, &[text("x")], &[("positive", x.clone())]),
        with_keywords(&number("Float"), &[text("os")], &[("precision", int(53))]),
        new(&add, &[text("__import__('os').system('id')")]),
        new(&add, &[loader()]),
        build(&x, &dict(&[("name", int(1))])),
        new(&global("sympy.core.power", "Pow"), &[x.clone(), x.clone()]),
        call(&global("sympy", "sympify"), &[text("1")]),
    ] {
        assert!(worst(&found) >= Risk::Unreviewed, "{:?}", risks(&found));
    }
}

/// Before protocol 4, NEWOBJ_EX is written as a call of `partial(getattr(Symbol, '__new__'), Symbol, 'x', positive=True)`.
#[test]
fn sympy_is_known_as_older_protocols_write_it() {
    let symbol = global("sympy.core.symbol", "Symbol");
    let new_of = |class: &[u8]| call(&global("builtins", "getattr"), &[class.to_vec(), text("__new__")]);
    let made = |function: &[u8], class: &[u8], name: Vec<u8>| {
        let keywords = dict(&[("positive", b"\x88".to_vec())]);
        // The function is the same object in both places, by the memo.
        let function = [function, b"\x94"].concat();
        let partial = call(&global("functools", "partial"), &[function]);
        let state = tuple(&[b"h\x00".to_vec(), tuple(&[class.to_vec(), name]), keywords, b"N".to_vec()]);
        call(&build(&partial, &state), &[])
    };
    let known = made(&new_of(&symbol), &symbol, text("x"));
    assert_eq!(worst(&known), Risk::Known, "{:?}", risks(&known));
    let loader_class = global("torch.utils.data.dataloader", "DataLoader");
    for found in [
        made(&new_of(&symbol), &loader_class, text("x")),
        made(&new_of(&symbol), &symbol, loader()),
        made(&new_of(&loader_class), &loader_class, text("x")),
        made(&global("os", "system"), &symbol, text("x")),
        call(&new_of(&symbol), &[symbol.clone(), text("x")]),
    ] {
        assert!(worst(&found) >= Risk::Unreviewed, "{:?}", risks(&found));
    }
}

/// Lightning's callbacks hold a file system of fsspec, whose other classes connect and run programs.
#[test]
fn the_local_file_system_is_known_as_fsspec_writes_it() {
    let function = global("fsspec.spec", "make_instance");
    let local = global("fsspec.implementations.local", "LocalFileSystem");
    let made = |class: &[u8], args: Vec<u8>, options: &[(&str, Vec<u8>)]| {
        call(&function, &[class.to_vec(), args, dict(options)])
    };
    let known = made(&local, tuple(&[]), &[("auto_mkdir", b"\x88".to_vec())]);
    assert_eq!(worst(&known), Risk::Known, "{:?}", risks(&known));
    for found in [
        made(&global("fsspec.implementations.sftp", "SFTPFileSystem"), tuple(&[]), &[]),
        made(&global("os", "system"), tuple(&[text("id")]), &[]),
        made(&local, tuple(&[text("x")]), &[]),
        made(&local, tuple(&[]), &[("listing", loader())]),
        call(&local, &[]),
        build(&known, &dict(&[("path", text("x"))])),
    ] {
        assert!(worst(&found) >= Risk::Unreviewed, "{:?}", risks(&found));
    }
}
