{
  imports = [
    ./api.nix
    ./console.nix
    ./files.nix
    ./links.nix
  ];
}
