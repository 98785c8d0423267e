"""Export a zoo of networks for `rubato bench infer --zoo DIR`: every family of torchvision and what
bench/zoo_nets.py adds, by both exporters of PyTorch, in several opsets, with and without symbolic dims.

    zoo.py DIR [WORD...]     only names that contain one of the words

DIR/NAME.onnx gets random weights, DIR/NAME.npz its inputs. What an exporter refuses is told and left out."""
import os
import sys
import warnings

import numpy
import torch
import torch.nn as nn
import torchvision

import zoo_nets

# name: (side of the image, how it is exported)
VISION = {
    "alexnet": 224, "convnext_tiny": 224, "densenet121": 224, "efficientnet_b0": 224,
    "efficientnet_v2_s": 224, "googlenet": 224, "inception_v3": 299, "mnasnet0_5": 224,
    "mobilenet_v2": 224, "mobilenet_v3_large": 224, "mobilenet_v3_small": 224, "regnet_x_400mf": 224,
    "regnet_y_400mf": 224, "resnet18": 224, "resnet50": 224, "resnext50_32x4d": 224,
    "shufflenet_v2_x0_5": 224, "shufflenet_v2_x1_0": 224, "squeezenet1_0": 224, "squeezenet1_1": 224,
    "swin_t": 224, "swin_v2_t": 224, "vgg11": 224, "vgg11_bn": 224, "vit_b_32": 224, "maxvit_t": 224,
    "segmentation.deeplabv3_mobilenet_v3_large": 192, "segmentation.lraspp_mobilenet_v3_large": 224,
    "segmentation.fcn_resnet50": 128, "segmentation.deeplabv3_resnet50": 128,
}
VIDEO = {"r3d_18": 56, "mc3_18": 56, "r2plus1d_18": 56, "s3d": 224, "swin3d_t": 64, "mvit_v2_s": 224}


class First(nn.Module):
    """The main output of a model that gives a dictionary."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        y = self.net(x)
        return y["out"] if isinstance(y, dict) else y


class Features(nn.Module):
    """Backbone and head of a detector, without anchors and suppression."""

    def __init__(self, net):
        super().__init__()
        self.backbone, self.head = net.backbone, net.head

    def forward(self, x):
        f = list(self.backbone(x).values())
        y = self.head(f)
        return tuple(y[k] for k in sorted(y))


def detector(name, side):
    net = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)
    return Features(net), (torch.randn(1, 3, side, side),)


def lively(net):
    """Running statistics and scales that are not zero and one, so that folding them matters."""
    for m in net.modules():
        if isinstance(m, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(m.running_mean, -0.1, 0.1)
            nn.init.uniform_(m.running_var, 0.8, 1.2)
            nn.init.uniform_(m.weight, 0.8, 1.2)
            nn.init.uniform_(m.bias, -0.1, 0.1)
    return net.eval()


def vision(name, side):
    module, fn = torchvision.models, name
    if "." in name:
        module, fn = getattr(module, name.split(".")[0]), name.split(".")[1]
    more = {"weights_backbone": None} if "segmentation" in name else {}
    more |= {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return First(getattr(module, fn)(weights=None, **more)), (torch.randn(1, 3, side, side),)


def video(name, side):
    net = getattr(torchvision.models.video, name)(weights=None)
    return net, (torch.randn(1, 3, 16 if name != "r3d_18" else 8, side, side),)


def cases():
    """name, maker, exporter, opset, symbolic batch; exporters take turns, some nets go through both."""
    makers = {n: (lambda n=n, s=s: vision(n, s)) for n, s in VISION.items()}
    makers |= {"video." + n: (lambda n=n, s=s: video(n, s)) for n, s in VIDEO.items()}
    makers |= {"detection." + n: (lambda n=n, s=s: detector(n, s)) for n, s in
               {"ssdlite320_mobilenet_v3_large": 320, "ssd300_vgg16": 300,
                "retinanet_resnet50_fpn": 128}.items()}
    ways = [("dynamo", 18, False), ("script", 17, True), ("dynamo", 20, True), ("script", 13, False)]
    for i, (name, make) in enumerate(makers.items()):
        yield name, make, *ways[i % len(ways)]
    for i, (name, make) in enumerate(zoo_nets.NETS.items()):
        yield name, make, *ways[i % 2 * 2]
        yield name + "-script", make, *ways[i % 2 * 2 + 1]


def export(path, make, exporter, opset, symbolic):
    torch.manual_seed(1)
    net, inputs = make()
    lively(net)
    names = [f"x{i}" for i in range(len(inputs))]
    same = all(x.shape[0] == inputs[0].shape[0] for x in inputs) and inputs[0].dim() > 2
    symbolic = symbolic and same
    more = {"verbose": False} if exporter == "dynamo" else {"do_constant_folding": True}
    if symbolic and exporter == "dynamo":
        more["dynamic_shapes"] = tuple({0: torch.export.Dim.AUTO} for _ in inputs)
    if symbolic and exporter == "script":
        more["dynamic_axes"] = {n: {0: "N"} for n in names}
    torch.onnx.export(net, inputs, path, input_names=names, dynamo=exporter == "dynamo",
                      opset_version=opset, external_data=False, **more)
    numpy.savez(path[:-5] + ".npz", **{n: x.numpy() for n, x in zip(names, inputs)})


def main(folder, words):
    warnings.filterwarnings("ignore")
    os.makedirs(folder, exist_ok=True)
    failed = 0
    for name, make, *way in cases():
        path = os.path.join(folder, name + ".onnx")
        if (words and not any(w in name for w in words)) or os.path.exists(path[:-5] + ".npz"):
            continue
        try:
            export(path, make, *way)
            print(f"{name}: {way[0]} opset {way[1]}{' symbolic' if way[2] else ''}", flush=True)
        except Exception as e:  # an exporter's own limits end one model, not the zoo
            failed += 1
            print(f"{name}: {way[0]} opset {way[1]} refused: {str(e).strip().splitlines()[0][:160]}",
                  flush=True)
    return 1 if failed and words else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
