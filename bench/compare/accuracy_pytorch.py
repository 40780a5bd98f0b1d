#!/usr/bin/env python3
"""Trains ResNet-18 on CIFAR-10 in PyTorch by the recipe of accuracy.sh, and prints the test accuracies of its epochs.

  accuracy_pytorch.py --data DIR --epochs 8 --seed 1 [--state FILE]

`DIR` has data_batch_*.bin and test_batch.bin of CIFAR-10. Float, one process with two threads, channels last. `FILE`
keeps the state after each epoch; a later run goes on from it with the same numbers.
"""
import argparse
import glob
import json
import os

import numpy as np
import torch
from torch import nn

import zoo_pytorch

SHIFT = 4
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # as nn/data/cifar10.cpp


def read(paths):
    records = np.concatenate([np.fromfile(p, np.uint8).reshape(-1, 3073) for p in paths])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255)
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def normalised(images):
    return (images - torch.tensor(MEAN).reshape(1, 3, 1, 1)) / torch.tensor(DEVIATION).reshape(1, 3, 1, 1)


def augmented(images, generator):
    """Shifted by up to SHIFT pixels with zeros at the border, and half of them mirrored."""
    padded = nn.functional.pad(images, (SHIFT,) * 4)
    result = torch.empty_like(images)
    places = torch.randint(0, 2 * SHIFT + 1, (len(images), 2), generator=generator).tolist()
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    for i, (y, x) in enumerate(places):
        image = padded[i, :, y:y + 32, x:x + 32]
        result[i] = image.flip(2) if mirrored[i] else image
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--state")
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    images, labels = read(sorted(glob.glob(os.path.join(options.data, "data_batch_*.bin"))))
    tests, test_labels = read([os.path.join(options.data, "test_batch.bin")])
    network = zoo_pytorch.resnet18(3, 10).to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    steps = (len(images) + options.batch - 1) // options.batch * options.epochs
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    loss, accuracies = nn.CrossEntropyLoss(), []
    if options.state and os.path.exists(options.state):
        state = torch.load(options.state)
        for part, values in ((network, "network"), (optimiser, "optimiser"), (schedule, "schedule")):
            part.load_state_dict(state[values])
        generator.set_state(state["generator"])
        accuracies = state["accuracies"]
    for _ in range(len(accuracies), options.epochs):
        network.train()
        order = torch.randperm(len(images), generator=generator)
        for first in range(0, len(images), options.batch):
            chosen = order[first:first + options.batch]
            batch = normalised(augmented(images[chosen], generator)).to(memory_format=torch.channels_last)
            optimiser.zero_grad()
            loss(network(batch), labels[chosen]).backward()
            optimiser.step()
            schedule.step()
        network.eval()
        with torch.no_grad():
            right = sum((network(normalised(tests[i:i + 250])).argmax(1) == test_labels[i:i + 250]).sum().item()
                        for i in range(0, len(tests), 250))
        accuracies.append(right / len(tests))
        if options.state:
            torch.save({"network": network.state_dict(), "optimiser": optimiser.state_dict(),
                        "schedule": schedule.state_dict(), "generator": generator.get_state(),
                        "accuracies": accuracies}, options.state + ".new")
            os.replace(options.state + ".new", options.state)
    print(json.dumps({"framework": "PyTorch " + torch.__version__, "seed": options.seed, "accuracies": accuracies}))


main()
