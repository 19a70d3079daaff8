#pragma once
#define HIPIFIED(x) (x)
