{
  imports = [
    ./appliance
    ./services
    ./tuning
  ];
}
