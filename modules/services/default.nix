{
  imports = [
    ./files.nix
    ./links.nix
  ];
}
