{
  imports = [
    ./api.nix
    ./files.nix
    ./links.nix
  ];
}
