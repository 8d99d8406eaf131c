use super::*;
use smallvec::smallvec;

#[test]
fn every_dtype_is_found_by_its_own_name() {
    for dtype in DType::ALL {
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
    }
    assert_eq!(DType::from_name("fp32"), None);
}

#[test]
fn bytes_that_disagree_with_the_shape_are_refused_with_both_counts() {
    let error = Tensor::plain(DType::F32, smallvec![2, 3], Bytes::from_static(&[0; 20])).unwrap_err();
    assert_eq!(error.to_string(), "shape [2, 3] of FP32 takes 24 bytes, got 20");
}

#[test]
fn a_shape_that_overflows_is_an_error_and_not_a_wrap() {
    let shape: Shape = smallvec![usize::MAX, 2];
    assert!(matches!(Tensor::plain(DType::U8, shape, Bytes::new()), Err(TensorError::Overflow { .. })));
    assert_eq!(volume(&[usize::MAX, 2, 0]), Some(0));
    assert_eq!(volume(&[]), Some(1));
}

#[test]
fn a_bool_is_zero_or_one() {
    let error = Tensor::plain(DType::Bool, smallvec![3], Bytes::from_static(&[0, 1, 2])).unwrap_err();
    assert_eq!(error, TensorError::NotABool { index: 2, value: 2 });
}

#[test]
fn numbers_and_text_are_not_confused() {
    assert!(Tensor::plain(DType::Bytes, smallvec![0], Bytes::new()).is_err());
    assert!(Tensor::text(smallvec![2], vec!["one".into()]).is_err());
    let text = Tensor::text(smallvec![1], vec!["one".into()]).unwrap();
    assert_eq!(text.as_text(), Some(&["one".to_string()][..]));
    assert_eq!(text.as_bytes(), None);
}
