# What partitions and files of an image are called. The boot loader, repart, sysupdate and `linerate update` go by them.
{ pkgs }:
let
  # systemd's names of partition types (systemd.image-policy(7)); a slot's says for which CPU it is.
  architecture =
    {
      x86_64 = "x86-64";
      aarch64 = "arm64";
    }
    .${pkgs.stdenv.hostPlatform.parsed.cpu.name};
in
rec {
  esp = "esp";
  types = {
    store = "usr-${architecture}";
    verity = "usr-${architecture}-verity";
  };
  # repart's name of the architecture.
  inherit architecture;
  efi =
    {
      x86-64 = "x64";
      arm64 = "aa64";
    }
    .${architecture};

  # A slot's label, by what is in it; sysupdate(8) calls one with nothing in it so.
  label = kind: version: "${kind}_${version}";
  empty = "_empty";

  # Where udev has them by these names.
  partitions = "/dev/disk/by-partlabel";
  var = rec {
    label = "var";
    device = "${partitions}/${label}";
    # Where it is encrypted, what is in it, and where its recovery key is until the first boot ends.
    opened = "/dev/mapper/${label}";
    recoveryKey = "/run/linerate-recovery-key";
  };

  # How large the hashes of a store of that size are: 32 bytes for each 4096, and for each 4096 of these, and a superblock.
  verityMiB = storeMiB: storeMiB / 127 + 2;

  # Of version VERSION of the image ID, on the server; @u is the slot's UUID, which is half of the hash.
  files = id: version: {
    store = "${id}_${version}_@u.store";
    verity = "${id}_${version}_@u.verity";
    uki = "${id}_${version}.efi";
  };
}
