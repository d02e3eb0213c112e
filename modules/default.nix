{
  imports = [
    ./services
  ];
}
