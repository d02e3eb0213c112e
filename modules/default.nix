{
  imports = [
    ./appliance
    ./fleet
    ./services
    ./tuning
  ];
}
