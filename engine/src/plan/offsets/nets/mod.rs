//! Buffers as the planner meets them in well-known nets: sizes and lifetimes follow the published architectures.

mod irregular;
mod net;
mod sequence;
mod vision;

use super::Buffer;
pub(super) use irregular::random_wiring;

/// Every net of these tests, by name.
pub(super) fn all() -> Vec<(&'static str, Vec<Buffer>)> {
    vec![
        ("VGG-16", vision::vgg16()),
        ("ResNet-50", vision::resnet50(1)),
        ("ResNet-50, batch 8", vision::resnet50(8)),
        ("DenseNet-121", vision::densenet121()),
        ("U-Net 512", vision::unet(512)),
        ("Inception-v3", vision::inception_v3()),
        ("YOLOv8n 640", vision::yolov8(640, 16)),
        ("YOLOv8s 320", vision::yolov8(320, 32)),
        ("BERT-base 128", sequence::bert(12, 128, 768, 12)),
        ("BERT-base 512", sequence::bert(12, 512, 768, 12)),
        ("BERT-large 384", sequence::bert(24, 384, 1024, 16)),
        ("decoder with cache", sequence::decoder(24, 64, 1024, 16, 448)),
        ("recurrent net", sequence::lstm(2, 48, 512)),
        ("EfficientNet-B0", irregular::efficientnet_b0()),
        ("HRNet-W32", irregular::hrnet(32)),
        ("NASNet-like cells", irregular::nasnet(12)),
        ("UNet++", irregular::unet_plus_plus(256)),
    ]
}
