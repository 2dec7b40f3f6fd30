"""Do several gateways on one store admit exactly what a limit allows?"""
