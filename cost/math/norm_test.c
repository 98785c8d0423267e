/* Special functions against values of 40 digits (mpmath 1.3) and identities. */
#include "cost/math/norm.h"

#include <math.h>

#include "test/test.h"

static void error_functions(void **state)
{
    (void)state;
    static const double at[][2] = {
        /* x, erfc */
        {0.0, 1.0},
        {0.01, 0.98871658444415038},
        {0.3, 0.67137324054087258},
        {1.0, 0.15729920705028513},
        {1.7, 0.016209541409225439},
        {2.5, 0.00040695201744495894},
        {4.0, 1.5417257900280019e-8},
        {6.0, 2.1519736712498913e-17},
        {20.0, 5.3958656116079009e-176},
        {25.0, 8.3001725711965228e-274},
        {-0.5, 1.5204998778130465},
        {-3.0, 1.9999779095030014},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(at); i++) {
        assert_near(ru_erfc(at[i][0]), at[i][1], 5e-13);
    }
    assert_true(isnan(ru_erfc(RU_NAN)) && isnan(ru_num_exp(RU_NAN)));
    assert_near(ru_num_exp(-730.0), exp(-730.0), 1e-5); /* 8 digits are left there */
    assert_true(ru_num_exp(-800) == 0 && isinf(ru_num_exp(710)) && isinf(ru_num_log(0)));
    assert_near(ru_num_exp(709.5), exp(709.5), 1e-14);
    assert_near(ru_num_log(1e-310), log(1e-310), 1e-15);
}

static void normal_law(void **state)
{
    (void)state;
    static const double quantiles[][2] = {
        {1e-300, -37.047096299361199}, {1e-20, -9.2623400897984076}, {1e-05, -4.2648907939228246},
        {0.025, -1.9599639845400542},  {0.3, -0.52440051270804082},  {0.9, 1.2815515655446006},
        {0.999, 3.0902323061678133},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(quantiles); i++) {
        assert_near(ru_norm_quantile(quantiles[i][0]), quantiles[i][1], 1e-14);
        assert_near(ru_norm_cdf(quantiles[i][1]), quantiles[i][0], 1e-12);
    }
    assert_near(ru_norm_quantile(0.5), 0, 1e-15);
    assert_true(isinf(ru_norm_quantile(0)) && isinf(ru_norm_quantile(1)));
    for (double p = 0.001; p < 1; p += 0.0173) {
        assert_near(ru_norm_cdf(ru_norm_quantile(p)), p, 1e-14);
    }
}

static void gamma_and_beta(void **state)
{
    (void)state;
    static const double logs[][2] = {
        {0.001, 6.9071788853838537},     {0.5, 0.57236494292470009}, {1.5, -0.12078223763524522},
        {3, 0.69314718055994531},        {9.99, 12.779315214350193}, {25.5, 56.389167643719947},
        {1000000.0, 12815504.569147612},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(logs); i++) {
        assert_near(ru_gamma_log(logs[i][0]), logs[i][1], 2e-14);
    }
    static const double incomplete[][4] = {
        /* a, x, P, Q */
        {0.1, 0.01, 0.66262125995447979, 0.33737874004552021},
        {0.5, 3, 0.98569412156457036, 0.01430587843542964},
        {5, 2, 0.052653017343711157, 0.94734698265628884},
        {5, 12, 0.992399609318933, 0.0076003906810669955},
        {100, 90, 0.15822098918643017, 0.84177901081356983},
        {100, 130, 0.99724959163269347, 0.0027504083673065263},
        {2000, 1950, 0.13135263695671471, 0.86864736304328529},
        {100000, 100500, 0.94289673002397129, 0.057103269976028711},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(incomplete); i++) {
        assert_near(ru_gamma_p(incomplete[i][0], incomplete[i][1]), incomplete[i][2], 1e-12);
        assert_near(ru_gamma_q(incomplete[i][0], incomplete[i][1]), incomplete[i][3], 1e-12);
    }
    static const double beta[][4] = {
        {0.5, 0.5, 0.1, 0.20483276469913346},   {2, 3, 0.4, 0.5248},
        {20, 5, 0.9, 0.91492511412132924},      {300, 200, 0.55, 0.011853654379737195},
        {5, 300, 0.001, 1.6329157832276122e-5},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(beta); i++) {
        assert_near(ru_beta_inc(beta[i][0], beta[i][1], beta[i][2]), beta[i][3], 1e-12);
    }
}

static void students_law(void **state)
{
    (void)state;
    static const double student[][3] = {{1, 1, 0.75},
                                        {3, -2.5, 0.043853323504032774},
                                        {10, 1.812, 0.94996236896707639},
                                        {200, -6, 4.5575601744051927e-9}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(student); i++) {
        assert_near(ru_student_cdf(student[i][0], student[i][1]), student[i][2], 1e-11);
        assert_near(ru_student_quantile(student[i][0], student[i][2]), student[i][1], 1e-11);
    }
}

RU_TESTS(cost_norm, cmocka_unit_test(error_functions), cmocka_unit_test(normal_law),
         cmocka_unit_test(gamma_and_beta), cmocka_unit_test(students_law))
