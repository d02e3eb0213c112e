# Names of an image's partitions and files, as the boot loader, repart, sysupdate and `linerate update` use them.
{ pkgs }:
let
  # systemd's names of partition types (systemd.image-policy(7)); a slot's type names the CPU's architecture.
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

  # A slot's label, by its content; sysupdate(8) gives this one to an empty slot.
  label = kind: version: "${kind}_${version}";
  empty = "_empty";

  # Where udev lists them by these names.
  partitions = "/dev/disk/by-partlabel";
  var = rec {
    label = "var";
    device = "${partitions}/${label}";
    # If it is encrypted, its decrypted device, and where its recovery key is until the first boot ends.
    opened = "/dev/mapper/${label}";
    recoveryKey = "/run/linerate-recovery-key";
  };

  # The size of the hashes for a store of this size: 32 bytes for each 4096, and for each 4096 of these, and a
  # superblock.
  verityMiB = storeMiB: storeMiB / 127 + 2;

  # The files of version VERSION of the image ID, on the server; @u is the slot's UUID, which is half of the hash.
  files = id: version: {
    store = "${id}_${version}_@u.store";
    verity = "${id}_${version}_@u.verity";
    uki = "${id}_${version}.efi";
  };
}
