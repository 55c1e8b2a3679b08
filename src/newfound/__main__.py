from newfound.app.main import main

main()
